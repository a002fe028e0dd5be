//! Values that the chart refuses with a sentence: which key, which value, and what to set instead.

use serde_json::Value;

use crate::helm::Helm;

/// Values, and what the sentence about them contains.
const REFUSED: &[(&str, &[&str])] = &[
    (
        "image: null",
        &["image: none is set", "docs/image.md", "image: local-volume-provisioner:0.1.0"],
    ),
    ("image: {tag: '1', registry: ''}", &["image: none is set"]),
    (
        "image: registry.k8s.io/sig-storage/local-volume-provisioner:v2.8.0",
        &[
            "image: registry.k8s.io/sig-storage/",
            "the Go provisioner's",
            "image: local-volume-provisioner:0.1.0",
        ],
    ),
    (
        "image: {registry: mirror.example.com/k8s, repository: sig-storage/local-volume-provisioner}",
        &["image: mirror.example.com/k8s/sig-storage/"],
    ),
    (
        "image: '{{ .Values.global.a }}/sig-storage/local-volume-provisioner'\nglobal: {a: b}",
        &["image: b/sig-storage/"],
    ),
    (
        "image: quay.io/external_storage/local-volume-provisioner-arm64:v2.3.4",
        &["the Go provisioner's"],
    ),
    ("classes: null", &["classes: null", "classes: []"]),
    (
        "classes: [{name: a, hostDir: /mnt/a}, {name: a, hostDir: /mnt/b}]",
        &["two classes are called \"a\"", "a name of its own"],
    ),
    (
        "classes: [{name: a, hostDir: /mnt/a}, {name: b, hostDir: /mnt/b, mountDir: /mnt/a/}]",
        &["the mountDir /mnt/a is given to two hostDirs, /mnt/a and /mnt/b"],
    ),
    (
        "classes: [{name: a, hostDir: /mnt/a}, {name: b, hostDir: /mnt/a/, namePattern: '*'}]",
        &[
            "\"a\" and \"b\" both have the hostDir /mnt/a and the namePattern \"*\"",
            "another hostDir or namePattern",
        ],
    ),
    (
        "classes: [{name: a, hostDir: /a, namePattern: 'x*, y*'}, {name: b, hostDir: /a, namePattern: 'y*,z*'}]",
        &["namePattern \"y*\""],
    ),
    (
        "classes: [{name: a, hostDir: /a, namePattern: 'x,[a-'}]",
        &["class \"a\" has the namePattern \"[a-\"", "sd[a-f]"],
    ),
    ("classes: [{name: a, hostDir: /a, namePattern: '[]'}]", &["namePattern \"[]\""]),
    ("classes: [{name: a, hostDir: /a, namePattern: '[^]'}]", &["namePattern \"[^]\""]),
    (r"classes: [{name: a, hostDir: /a, namePattern: '\[a]['}]", &["has the namePattern"]),
    (r"classes: [{name: a, hostDir: /a, namePattern: '[a\]'}]", &["has the namePattern"]),
    (r"classes: [{name: a, hostDir: /a, namePattern: 'a\'}]", &["has the namePattern"]),
    ("classes: [{name: a, hostDir: /mnt/..}]", &["class \"a\" has the hostDir /,", "set hostDir"]),
    (
        "classes: [{name: a, hostDir: /var/lib/kubelet/}]",
        &[
            "class \"a\" has the hostDir /var/lib/kubelet,",
            "kubelet's directory /var/lib/kubelet",
            "set hostDir",
        ],
    ),
    (
        "classes: [{name: a, hostDir: /data/kubelet/pods}]\nkubeletDir: /data/kubelet",
        &["hostDir /data/kubelet/pods"],
    ),
    (
        "classes: [{name: a, hostDir: /a, volumeMode: Block}]\nprivileged: 'no'",
        &["privileged: false", "class \"a\" (volumeMode: Block)", "set privileged to true"],
    ),
    (
        "classes: [{name: a, hostDir: /a, volumeMode: Block}]\nsecurityContext: {privileged: false}",
        &["privileged: false"],
    ),
    (
        "classes: [{name: a, hostDir: /a, fsType: xfs}]\nprivileged: false",
        &["privileged: false", "fsType \"xfs\" of class \"a\"", "remove fsType"],
    ),
    (
        "classes: [{name: a, hostDir: /a, devices: {match: [/dev/disk/by-id/a*]}}]",
        &["class \"a\" has devices without binding: disk", "set binding to disk"],
    ),
    (
        "classes: [{name: a, hostDir: /a, binding: disk, devices: {match: [/dev/disk/by-id/a*]}}]\nsecurityContext: {privileged: 'no'}",
        &["privileged: false", "class \"a\"", "devices; set privileged to true"],
    ),
    (
        "classes: [{name: a, hostDir: /a, binding: disk, devices: {match: [/dev/disk/by-id/a*]}}]\nmountDevVolume: 'off'",
        &[
            "mountDevVolume: false hides /dev/disk from devices of class \"a\"",
            "set mountDevVolume to true",
        ],
    ),
    (
        "classes: [{name: a, hostDir: /a, volumeMode: Block, binding: disk, devices: {match: [/dev/disk/by-id/a*], filesystem: ext4}}]",
        &[
            "class \"a\" has devices.filesystem, which makes mounted volumes",
            "remove volumeMode: Block and fsType, or filesystem",
        ],
    ),
    (
        "classes: [{name: a, hostDir: /a, fsType: xfs, binding: disk, devices: {match: [/dev/disk/by-id/a*], filesystem: xfs}}]",
        &["class \"a\" has devices.filesystem"],
    ),
    (
        "classes: [{name: a, hostDir: /a, binding: disk, devices: {match: [/dev/disk/by-id/a*], mountOptions: [noatime]}}]",
        &[
            "class \"a\" has devices.mountOptions without filesystem",
            "set filesystem, or remove mountOptions",
        ],
    ),
    (
        "classes: [{name: a, hostDir: /a, binding: disk, devices: {match: [/dev/disk/by-id/a*]}}]\nnodeIsolation: {enabled: true}",
        &["nodeIsolation: class \"a\" has binding: disk"],
    ),
    (
        "classes: [{name: a, hostDir: /a, cleanMethod: zero, blockCleanerCommand: [/scripts/dd_zero.sh]}]",
        &["class \"a\" has a cleanMethod and a blockCleanerCommand", "keep one"],
    ),
    (
        "classes: [{name: a, hostDir: /a, binding: disk}, {name: b, hostDir: /run}]",
        &["hostDir /run/ overlaps /run/local-volume-provisioner/", "use another directory"],
    ),
    (
        "classes: [{name: a, hostDir: /a, mountDir: /run/local-volume-provisioner/a, binding: disk}]",
        &["mountDir /run/local-volume-provisioner/a/ overlaps"],
    ),
    (
        "classes: [{name: a, hostDir: /a, binding: disk}]\nnodeIsolation: {enabled: true}",
        &["nodeIsolation: class \"a\" has binding: disk", "remove binding"],
    ),
    (
        "updateStrategy: {rollingUpdate: {maxSurge: 1}}",
        &["updateStrategy", "maxSurge 1", "maxUnavailable"],
    ),
    ("updateStrategy: {rollingUpdate: {maxSurge: 10%}}", &["maxSurge 10%"]),
    (
        "tolerations: [{key: disks, operator: Foo}]",
        &["tolerations: the operator \"Foo\" of key \"disks\"", "Exists or Equal"],
    ),
    (
        "nodeCleanup: {enabled: true, tolerations: [{operator: Foo}]}",
        &["nodeCleanup.tolerations: the operator \"Foo\""],
    ),
    (
        "serviceMonitor: {enabled: true}\npodMonitor: {enabled: true}",
        &["podMonitor", "serviceMonitor", "to false"],
    ),
    (
        "prometheusRule: {enabled: true, runbookUrl: docs/alerts.md}",
        &["prometheusRule: runbookUrl \"docs/alerts.md\"", "https://"],
    ),
    ("enableWindows: true", &["enableWindows: this provisioner runs on Linux nodes only"]),
    ("enableWindows: 'yes'", &["enableWindows: this provisioner"]),
    (
        "classes: []\nnodeCleanup: {enabled: true}",
        &["nodeCleanup: there is no class", "nodeCleanup.storageClassNames"],
    ),
];

/// Texts that do not have their format.
const MALFORMED: &[(&str, &[&str])] = &[
    ("classes: [{name: a, hostDir: mnt}]", &["hostDir of class \"a\": \"mnt\"", "begin it with /"]),
    ("classes: [{name: a, hostDir: /a, mountDir: b}]", &["mountDir of class \"a\": \"b\""]),
    ("classes: [{name: A_b, hostDir: /a}]", &["name: \"A_b\"", "lower-case letters"]),
    (
        "classes: [{name: a, hostDir: /a, cleanupTimeout: 2d}]",
        &["cleanupTimeout of class \"a\": \"2d\"", "6h"],
    ),
    (
        "classes: [{name: a, hostDir: /a, cleanupTimeout: 0h0.0s}]",
        &["\"0h0.0s\" is no duration above 0"],
    ),
    ("kubeletDir: var", &["kubeletDir: \"var\""]),
    ("minResyncPeriod: soon", &["minResyncPeriod: \"soon\""]),
    (
        "image: {repository: a, digest: 'sha256:0'}",
        &["image.digest: \"sha256:0\"", "64 hexadecimal"],
    ),
    ("prometheusRule: {interval: 1.5m}", &["prometheusRule.interval: \"1.5m\"", "2m"]),
    ("uninstall: {timeout: 5m}", &["uninstall.timeout: \"5m\"", "90s"]),
    ("uninstall: {timeout: 121s}", &["uninstall.timeout: \"121s\""]),
    ("nodeCleanup: {pvcDeletionDelay: soon}", &["nodeCleanup.pvcDeletionDelay: \"soon\""]),
    (
        "nodeCleanup: {stalePvDiscoveryInterval: 0s}",
        &["nodeCleanup.stalePvDiscoveryInterval: \"0s\""],
    ),
    (
        "classes: [{name: a, hostDir: /a, devices: {match: [/dev/disk/by-id/a*, /dev/sd*]}}]",
        &[
            "devices.match of class \"a\": \"/dev/sd*\" matches no link below /dev/disk",
            "write one such as /dev/disk/by-id/nvme-*",
        ],
    ),
    (
        "classes: [{name: a, hostDir: /a, devices: {match: ['/dev/disk/by-*/a']}}]",
        &["devices.match of class \"a\": \"/dev/disk/by-*/a\""],
    ),
    (
        "classes: [{name: a, hostDir: /a, devices: {match: [/dev/disk/by-id/a/b]}}]",
        &["\"/dev/disk/by-id/a/b\""],
    ),
    (
        "classes: [{name: a, hostDir: /a, devices: {match: [/dev/disk/by-id/a], exclude: ['/dev/disk/by-id/b, sda']}}]",
        &["devices.exclude of class \"a\": \"sda\""],
    ),
    (
        "classes: [{name: a, hostDir: /a, devices: {match: [/dev/disk/by-id/a], minSize: 500GiB}}]",
        &["devices.minSize of class \"a\": \"500GiB\" is no size", "500Gi or 2T"],
    ),
    (
        "classes: [{name: a, hostDir: /a, devices: {match: [/dev/disk/by-id/a], maxSize: '1.5Ti'}}]",
        &["devices.maxSize of class \"a\": \"1.5Ti\""],
    ),
    ("nodeCleanup: {storageClassNames: [A]}", &["nodeCleanup.storageClassNames: \"A\""]),
    ("nodeCleanup: {csiDrivers: ['a,b']}", &["nodeCleanup.csiDrivers: \"a,b\""]),
];

/// What is next to a refused value.
const ACCEPTED: &[&str] = &[
    "image: registry.example.com/local-volume-provisioner:0.1.0",
    "image: example.com/my-sig-storage/local-volume-provisioner:0.1.0",
    "classes: []",
    r"classes: [{name: a, hostDir: /a, namePattern: 'sd[a-f],[^^],[a^],\[,[\]],]'}]",
    "classes: [{name: a, hostDir: /var/lib/kubelet-disks}]",
    "classes: [{name: a, hostDir: /a, volumeMode: Block}]",
    "classes: [{name: a, hostDir: /a, volumeMode: Filesystem, fsType: null}]\nprivileged: false",
    "classes: [{name: a, hostDir: /a, namePattern: x*}, {name: b, hostDir: /a, namePattern: y*}]",
    "classes: [{name: a, hostDir: /run, binding: path}, {name: b, hostDir: /b, binding: null}]",
    "classes: [{name: a, hostDir: /a, binding: disk}, {name: b, hostDir: /run/local-volume}]",
    "classes: [{name: a, hostDir: /a, binding: path}]\nnodeIsolation: {enabled: true}",
    "classes: [{name: a, hostDir: /a, devices: null}]\nprivileged: false",
    "classes: [{name: a, hostDir: /a, binding: disk, devices: {match: [/dev/disk/by-id/a*], exclude: null, minSize: '1e12'}}]",
    "classes: [{name: a, hostDir: /a, binding: disk, devices: {match: ['/dev/disk/by-id/a, /dev/disk/by-path/pci-*']}}]\nmountDevVolume: false\nadditionalVolumes: [{name: b, hostPath: {path: /dev}}]\nadditionalVolumeMounts: [{name: b, mountPath: /dev/}]",
    "classes: [{name: a, hostDir: /a, volumeMode: Block, binding: disk, devices: {match: [/dev/disk/by-id/a*], filesystem: null, mountOptions: []}}]",
    "classes: [{name: a, hostDir: /a, volumeMode: Filesystem, fsType: '', binding: disk, devices: {match: [/dev/disk/by-id/a*], filesystem: xfs, mountOptions: null}}]",
    "updateStrategy: {rollingUpdate: {maxSurge: 0, maxUnavailable: 2}}",
    "updateStrategy: {type: OnDelete}",
    "classes: [{name: a.b-1, hostDir: /a, mountDir: null, cleanupTimeout: 1h0.5m}]",
    "classes: [{name: a, hostDir: /a, cleanupTimeout: ''}]\nminResyncPeriod: ''\nimage: {repository: a, digest: ''}",
    "uninstall: {timeout: 120s}\nprometheusRule: {interval: 1m30s}",
    "nodeCleanup: {pvcDeletionDelay: 0s, csiDrivers: ['x=annotation:a|affinity:b']}",
    "tolerations: [{key: a, operator: Equal}, {operator: Exists}, {key: b}]",
];

fn values(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap()
}

#[test]
fn value_is_refused_with_key_value_and_remedy() {
    let helm = or_skip!(Helm::find());
    for (text, parts) in REFUSED.iter().chain(MALFORMED) {
        let said = helm.refusal_of(&values(text));
        for part in *parts {
            assert!(said.contains(part), "{text}: no {part:?} in {said}");
        }
        let line = said.lines().next().unwrap();
        let (_, sentence) = line.split_once("): ").unwrap();
        assert!(sentence.len() <= 160, "{} bytes: {sentence}", sentence.len());
    }
}

#[test]
fn similar_value_is_accepted() {
    let helm = or_skip!(Helm::find());
    for text in ACCEPTED {
        helm.render_values(&values(text));
    }
}
