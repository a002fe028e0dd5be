// A whole Kubernetes in one program: the tests' real cluster is this binary started once per component.
//
// The component is the program's own name (links are enough) or its first argument:
// etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubelet, kubectl.
package main

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/embed"
	"k8s.io/component-base/cli"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

func main() {
	component := filepath.Base(os.Args[0])
	if command := commandFor(component); command != nil {
		os.Exit(cli.Run(command))
	}
	if len(os.Args) > 1 {
		component, os.Args = os.Args[1], os.Args[1:]
		if command := commandFor(component); command != nil {
			os.Exit(cli.Run(command))
		}
	}
	fmt.Fprintf(os.Stderr, "%s is no component; there are etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubelet and kubectl\n", component)
	os.Exit(2)
}

func commandFor(component string) *cobra.Command {
	switch component {
	case "etcd":
		return etcdCommand()
	case "kube-apiserver":
		return apiserver.NewAPIServerCommand()
	case "kube-controller-manager":
		return controllermanager.NewControllerManagerCommand()
	case "kube-scheduler":
		return scheduler.NewSchedulerCommand()
	case "kubelet":
		return kubelet.NewKubeletCommand(context.Background())
	case "kubectl":
		return kubectl.NewDefaultKubectlCommand()
	}
	return nil
}

// etcdCommand keeps a cluster's state in a directory that does not have to survive a power cut. It never
// calls fsync, which takes most of etcd's time on an ordinary disk.
func etcdCommand() *cobra.Command {
	var directory, clientURL string
	command := &cobra.Command{
		Use:          "etcd",
		SilenceUsage: true,
		RunE: func(*cobra.Command, []string) error {
			client, err := url.Parse(clientURL)
			if err != nil {
				return err
			}
			config := embed.NewConfig()
			config.Dir = directory
			config.UnsafeNoFsync = true
			config.LogLevel = "error"
			config.ListenClientUrls = []url.URL{*client}
			config.AdvertiseClientUrls = config.ListenClientUrls
			// A single member has no peers, but etcd requires an address for them: any free port suffices.
			peer := url.URL{Scheme: "http", Host: "127.0.0.1:0"}
			config.ListenPeerUrls = []url.URL{peer}
			server, err := embed.StartEtcd(config)
			if err != nil {
				return err
			}
			defer server.Close()
			stop := make(chan os.Signal, 1)
			signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
			select {
			case err = <-server.Err():
			case <-stop:
			}
			return err
		},
	}
	command.Flags().StringVar(&directory, "data-dir", "", "where the state is kept")
	command.Flags().StringVar(&clientURL, "listen-client-url", "http://127.0.0.1:2379", "where the API server connects to")
	return command
}
