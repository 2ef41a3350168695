package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	provisionerName = "berth.dev/local"
	provisionedBy   = "pv.kubernetes.io/provisioned-by"
	selectedNode    = "volume.kubernetes.io/selected-node"
	storedBy        = "volume.kubernetes.io/storage-provisioner"
)

// provision creates a directory for each claim of a class of berth.dev/local once a pod on the node uses it, as a copy
// of the claim's source if it has one, and removes it after the claim.
func provision(kubeconfig, directory string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	// Twice a second is enough: a test cluster has few volumes.
	for ; ; time.Sleep(500 * time.Millisecond) {
		if err := errors.Join(makeVolumes(client, directory), removeVolumes(client, directory)); err != nil {
			log.Print(err)
		}
	}
}

func makeVolumes(client kubernetes.Interface, directory string) error {
	claims, err := client.CoreV1().PersistentVolumeClaims("").List(context.TODO(), meta.ListOptions{})
	if err != nil {
		return err
	}
	var failed []error
	for _, claim := range claims.Items {
		node := claim.Annotations[selectedNode]
		if claim.Status.Phase == core.ClaimPending && node != "" && claim.Annotations[storedBy] == provisionerName {
			failed = append(failed, makeVolume(client, directory, &claim, node))
		}
	}
	return errors.Join(failed...)
}

func makeVolume(client kubernetes.Interface, directory string, claim *core.PersistentVolumeClaim, node string) error {
	name := "pvc-" + string(claim.UID)
	if _, err := client.CoreV1().PersistentVolumes().Get(context.TODO(), name, meta.GetOptions{}); err == nil || !apierrors.IsNotFound(err) {
		return err
	}
	path := filepath.Join(directory, name)
	if err := os.RemoveAll(path); err != nil {
		return err
	}
	if err := os.Mkdir(path, 0o777); err != nil {
		return err
	}
	if source := claim.Spec.DataSource; source != nil {
		if source.Kind != "PersistentVolumeClaim" {
			return fmt.Errorf("claim %s: its source is a %s; only claims are cloned here", claim.Name, source.Kind)
		}
		original, err := client.CoreV1().PersistentVolumeClaims(claim.Namespace).Get(context.TODO(), source.Name, meta.GetOptions{})
		if err != nil {
			return err
		}
		if original.Spec.VolumeName == "" {
			return fmt.Errorf("claim %s: its source %s has no volume yet", claim.Name, source.Name)
		}
		from := filepath.Join(directory, original.Spec.VolumeName) + "/."
		if output, err := exec.Command("cp", "--archive", "--reflink=auto", from, path).CombinedOutput(); err != nil {
			return fmt.Errorf("cp: %w: %s", err, output)
		}
	}
	// Whatever the umask is.
	if err := os.Chmod(path, 0o777); err != nil {
		return err
	}
	_, err := client.CoreV1().PersistentVolumes().Create(context.TODO(), &core.PersistentVolume{
		ObjectMeta: meta.ObjectMeta{Name: name, Annotations: map[string]string{provisionedBy: provisionerName}},
		Spec: core.PersistentVolumeSpec{
			Capacity:                      core.ResourceList{core.ResourceStorage: claim.Spec.Resources.Requests[core.ResourceStorage]},
			AccessModes:                   claim.Spec.AccessModes,
			PersistentVolumeReclaimPolicy: core.PersistentVolumeReclaimDelete,
			StorageClassName:              *claim.Spec.StorageClassName,
			ClaimRef: &core.ObjectReference{
				APIVersion: "v1", Kind: "PersistentVolumeClaim",
				Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID, ResourceVersion: claim.ResourceVersion,
			},
			PersistentVolumeSource: core.PersistentVolumeSource{Local: &core.LocalVolumeSource{Path: path}},
			NodeAffinity: &core.VolumeNodeAffinity{Required: &core.NodeSelector{
				NodeSelectorTerms: []core.NodeSelectorTerm{{MatchExpressions: []core.NodeSelectorRequirement{
					{Key: core.LabelHostname, Operator: core.NodeSelectorOpIn, Values: []string{node}},
				}}},
			}},
		},
	}, meta.CreateOptions{})
	return err
}

func removeVolumes(client kubernetes.Interface, directory string) error {
	volumes, err := client.CoreV1().PersistentVolumes().List(context.TODO(), meta.ListOptions{})
	if err != nil {
		return err
	}
	var failed []error
	for _, volume := range volumes.Items {
		if volume.Status.Phase != core.VolumeReleased || volume.Annotations[provisionedBy] != provisionerName {
			continue
		}
		if err := os.RemoveAll(filepath.Join(directory, volume.Name)); err != nil {
			failed = append(failed, err)
			continue
		}
		failed = append(failed, client.CoreV1().PersistentVolumes().Delete(context.TODO(), volume.Name, meta.DeleteOptions{}))
	}
	return errors.Join(failed...)
}
