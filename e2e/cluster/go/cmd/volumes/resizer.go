package main

import (
	"context"
	"os"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
)

const (
	lookEvery   = time.Second
	provisioned = "pv.kubernetes.io/provisioned-by"
)

// resizer gives volumes the size that their claims ask for by now.
type resizer struct{ client kubernetes.Interface }

func (r *resizer) look(ctx context.Context) {
	found, err := r.client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		klog.Errorf("volumes are not listed: %v", err)
		return
	}
	for i := range found.Items {
		volume := &found.Items[i]
		if volume.Annotations[provisioned] != name || volume.Status.Phase != v1.VolumeBound {
			continue
		}
		if err := r.grow(ctx, volume); err != nil {
			klog.Errorf("%s does not grow: %v", volume.Name, err)
		}
	}
}

func (r *resizer) grow(ctx context.Context, volume *v1.PersistentVolume) error {
	claims := r.client.CoreV1().PersistentVolumeClaims(volume.Spec.ClaimRef.Namespace)
	claim, err := claims.Get(ctx, volume.Spec.ClaimRef.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	wanted := claim.Spec.Resources.Requests[v1.ResourceStorage]
	if size := volume.Spec.Capacity[v1.ResourceStorage]; wanted.Cmp(size) > 0 {
		if err := growSized(ctx, volume.Spec.Local.Path, wanted); err != nil {
			return err
		}
		volume.Spec.Capacity[v1.ResourceStorage] = wanted
		_, err := r.client.CoreV1().PersistentVolumes().Update(ctx, volume, metav1.UpdateOptions{})
		if err != nil {
			return err
		}
		klog.Infof("%s has %s now", volume.Name, wanted.String())
	}
	size := volume.Spec.Capacity[v1.ResourceStorage]
	if told := claim.Status.Capacity[v1.ResourceStorage]; told.Cmp(size) >= 0 {
		return nil
	}
	claim.Status.Capacity = v1.ResourceList{v1.ResourceStorage: size}
	_, err = claims.UpdateStatus(ctx, claim, metav1.UpdateOptions{})
	return err
}

// growSized makes the file system of a sized volume larger, under the pod that uses it. The others
// are folders, whose size nobody holds.
func growSized(ctx context.Context, path string, size resource.Quantity) error {
	if _, err := os.Stat(path + suffix); os.IsNotExist(err) {
		return nil
	}
	if err := os.Truncate(path+suffix, size.Value()); err != nil {
		return err
	}
	device, err := run(ctx, "losetup", "--associated", path+suffix, "--noheadings", "--output=NAME")
	if err != nil {
		return err
	}
	if _, err := run(ctx, "losetup", "--set-capacity", device); err != nil {
		return err
	}
	_, err = run(ctx, "xfs_growfs", "-d", path)
	return err
}
