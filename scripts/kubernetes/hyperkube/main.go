// One binary for a cluster of one node, because its parts share most of their code. The first argument names the part.
package main

import (
	"context"
	"log"
	"os"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

const usage = "usage: hyperkube etcd|apiserver|controller-manager|scheduler|kubelet|kubectl [OPTION...]\n" +
	"       hyperkube provisioner KUBECONFIG DIRECTORY"

func main() {
	log.SetFlags(0)
	if len(os.Args) < 2 {
		log.Fatal(usage)
	}
	os.Args = os.Args[1:]
	var command *cobra.Command
	switch os.Args[0] {
	case "etcd":
		etcdmain.Main(os.Args)
		return
	case "apiserver":
		command = apiserver.NewAPIServerCommand()
	case "controller-manager":
		command = controllers.NewControllerManagerCommand()
	case "scheduler":
		command = scheduler.NewSchedulerCommand()
	case "kubelet":
		command = kubelet.NewKubeletCommand(context.Background())
	case "kubectl":
		command = kubectl.NewDefaultKubectlCommand()
	case "provisioner":
		if len(os.Args) != 3 {
			log.Fatal(usage)
		}
		log.Fatal(provision(os.Args[1], os.Args[2]))
	default:
		log.Fatal(usage)
	}
	os.Exit(cli.Run(command))
}
