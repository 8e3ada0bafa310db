// Volumes makes the claims of the suite's cluster into folders of this machine.
//
// Three storage classes: `standard` can be reached from every node, as a network disk can; `pinned`
// stays on the node of its first pod; `sized` is pinned and has the size that was asked for, so
// that it can run full. Claims that ask for more grow, while their pods run.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"
)

const (
	name     = "imago.dev/volumes"
	kindKey  = "kind"
	hostname = "kubernetes.io/hostname"
	suffix   = ".img"
)

type provisioner struct{ root string }

func (p *provisioner) Provision(ctx context.Context, options controller.ProvisionOptions) (*v1.PersistentVolume, controller.ProvisioningState, error) {
	path := filepath.Join(p.root, options.PVName)
	kind := options.StorageClass.Parameters[kindKey]
	size := options.PVC.Spec.Resources.Requests[v1.ResourceStorage]
	if err := os.MkdirAll(path, 0o755); err != nil {
		return nil, controller.ProvisioningFinished, err
	}
	if kind == "sized" {
		if err := mountSized(ctx, path, size.Value()); err != nil {
			return nil, controller.ProvisioningFinished, err
		}
	}
	if err := os.Chmod(path, 0o777); err != nil {
		return nil, controller.ProvisioningFinished, err
	}
	return &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: options.PVName},
		Spec: v1.PersistentVolumeSpec{
			PersistentVolumeReclaimPolicy: *options.StorageClass.ReclaimPolicy,
			AccessModes:                   options.PVC.Spec.AccessModes,
			Capacity:                      v1.ResourceList{v1.ResourceStorage: size},
			PersistentVolumeSource:        v1.PersistentVolumeSource{Local: &v1.LocalVolumeSource{Path: path}},
			NodeAffinity:                  affinity(kind, options.SelectedNodeName),
		},
	}, controller.ProvisioningFinished, nil
}

func (p *provisioner) Delete(ctx context.Context, volume *v1.PersistentVolume) error {
	path := volume.Spec.Local.Path
	if filepath.Dir(path) != p.root {
		return fmt.Errorf("%s is not one of ours", path)
	}
	// Not mounted unless it is a sized one: then there is nothing to undo.
	_ = exec.CommandContext(ctx, "umount", "-l", path).Run()
	if err := os.RemoveAll(path + suffix); err != nil {
		return err
	}
	return os.RemoveAll(path)
}

// mountSized gives a folder a file system of its own. XFS: it grows while it is used, without the
// rights over resources that ext4 wants for that.
func mountSized(ctx context.Context, path string, size int64) error {
	file, err := os.Create(path + suffix)
	if err != nil {
		return err
	}
	if err := file.Truncate(size); err != nil {
		return err
	}
	if err := file.Close(); err != nil {
		return err
	}
	if _, err := run(ctx, "mkfs.xfs", "-q", path+suffix); err != nil {
		return err
	}
	return mount(ctx, path)
}

func mount(ctx context.Context, path string) error {
	_, err := run(ctx, "mount", "-o", "loop", path+suffix, path)
	return err
}

// mountAgain brings sized volumes back of which the machine was started anew.
func (p *provisioner) mountAgain(ctx context.Context) error {
	images, err := filepath.Glob(filepath.Join(p.root, "*"+suffix))
	if err != nil {
		return err
	}
	for _, image := range images {
		path := strings.TrimSuffix(image, suffix)
		if _, err := run(ctx, "mountpoint", "-q", path); err == nil {
			continue
		}
		if err := mount(ctx, path); err != nil {
			return err
		}
	}
	return nil
}

func run(ctx context.Context, name string, words ...string) (string, error) {
	out, err := exec.CommandContext(ctx, name, words...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s %v: %w: %s", name, words, err, out)
	}
	return strings.TrimSpace(string(out)), nil
}

func affinity(kind, node string) *v1.VolumeNodeAffinity {
	match := v1.NodeSelectorRequirement{Key: hostname, Operator: v1.NodeSelectorOpExists}
	if kind != "standard" && node != "" {
		match.Operator = v1.NodeSelectorOpIn
		match.Values = []string{node}
	}
	term := v1.NodeSelectorTerm{MatchExpressions: []v1.NodeSelectorRequirement{match}}
	return &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{term}}}
}

func main() {
	kubeconfig := flag.String("kubeconfig", "", "how to reach the API server")
	root := flag.String("root", "", "folder for the volumes")
	klog.InitFlags(nil)
	flag.Parse()
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		klog.Fatal(err)
	}
	client := kubernetes.NewForConfigOrDie(config)
	ctx := context.Background()
	volumes := &provisioner{root: *root}
	if err := volumes.mountAgain(ctx); err != nil {
		klog.Fatal(err)
	}
	go wait.UntilWithContext(ctx, (&resizer{client: client}).look, lookEvery)
	controller.NewProvisionController(
		ctx, client, name, volumes, controller.LeaderElection(false),
	).Run(ctx)
}
