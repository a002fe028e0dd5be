"""Prints the output of `status` of the quickstart's provisioner, with volumes in several states.

The quickstart is started and ended.
"""
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request

PVS = "/api/v1/persistentvolumes"
CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
PODS = "/api/v1/namespaces/default/pods"


class Quickstart:
    def __init__(self):
        text = ""
        self.process = subprocess.Popen(["scripts/quickstart", "--keep"], stdout=subprocess.PIPE, text=True)
        for line in self.process.stdout:
            text += line
            if address := re.search(r"http://(\S+)/status", line):
                break
        else:
            sys.exit("the quickstart failed")
        self.address = address[1]
        self.root, self.scratch = re.search(r"KUBECONFIG=(/proc/\d+/root)(\S*)/kubeconfig", text).groups()
        self.enter = re.search(r"nsenter .*", text)[0].split()
        with open(f"{self.root}{self.scratch}/kubeconfig") as file:
            self.server = re.search(r"server: (\S+)", file.read())[1]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGINT)
        self.process.wait(30)

    def shell(self, script):
        """Runs a script where the volumes are mounted, in the directory of the quickstart."""
        subprocess.run([*self.enter, "sh", "-ec", f"cd {self.scratch}; {script}"], check=True)

    def ask(self, method, path, body=None):
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.server + path, data, {"Content-Type": kind}, method=method)
        with urllib.request.urlopen(request, timeout=20) as answer:
            return json.load(answer)

    def delete(self, path, name):
        self.ask("DELETE", f"{path}/{name}", {})

    def states(self):
        """The state of each entry."""
        try:
            with urllib.request.urlopen(f"http://{self.address}/status", timeout=20) as answer:
                document = json.load(answer)
        except urllib.error.HTTPError as answer:
            document = json.load(answer)
        return {it["entry"]: it["state"] for a_class in document["classes"] for it in a_class["volumes"]}

    def wait(self, **wanted):
        for _ in range(300):
            if wanted.items() <= self.states().items():
                return
            time.sleep(0.1)
        sys.exit(f"the states are {self.states()} instead of {wanted}")

    def claim(self, name):
        """Creates a claim and a Pod with it."""
        self.ask("POST", CLAIMS, {"metadata": {"name": name}, "spec": {
            "storageClassName": "disks", "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "16Mi"}}}})
        self.ask("POST", PODS, {"metadata": {"name": name}, "spec": {
            "containers": [{"name": "main", "image": "tenant"}],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]}})

    def pv_of(self, claim):
        pvs = self.ask("GET", PVS)["items"]
        return next((pv for pv in pvs if pv["spec"].get("claimRef", {}).get("name") == claim), None)


def status(run):
    # A volume that is in use, one in which a filesystem is mounted, a paused one, and two more disks.
    run.delete(PODS, "tenant-2")
    run.shell("mkdir -p disks/ram/data backup disks/share/nested; mount --bind disks/ram/data backup")
    run.shell("mount -t tmpfs nested disks/share/nested")
    run.ask("PATCH", f"{PVS}/{run.pv_of('fresh-4')['metadata']['name']}",
            {"metadata": {"annotations": {"local-volume-provisioner/paused": "true"}}})
    for claim in ("fresh-2", "fresh-3", "fresh-4"):
        run.delete(CLAIMS, claim)
    run.shell("for i in 1 2; do mkdir disks/hdd-$i; mount -t tmpfs -o size=128m hdd-$i disks/hdd-$i; done")
    run.wait(**{"hdd-1": "Available", "hdd-2": "Available"})
    run.claim("db-0")
    for _ in range(100):
        if run.pv_of("db-0"):
            break
        time.sleep(0.1)
    run.wait(ram="Waiting", share="CleaningFailed", nvme="Paused")
    time.sleep(5)
    # It fails, because volumes have problems.
    program = ["target/debug/local-volume-provisioner", "status", "--listen-address", run.address]
    print(subprocess.run(program, stdout=subprocess.PIPE, text=True, check=False).stdout, end="")


signal.signal(signal.SIGTERM, lambda *_: sys.exit())
os.environ["PATH"] += ":/usr/sbin:/sbin"
with Quickstart() as quickstart:
    status(quickstart)
