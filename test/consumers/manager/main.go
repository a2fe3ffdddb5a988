// Command manager is a manager of controller-runtime with one controller. For each Pod that it
// reconciles, it prints the name and the resourceVersion, or "gone". It tries to update the first
// one.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

func main() {
	flag.Parse() // controller-runtime defines --kubeconfig
	ctrl.SetLogger(zap.New(zap.WriteTo(os.Stderr)))
	if err := run(ctrl.SetupSignalHandler()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	manager, err := ctrl.NewManager(config, ctrl.Options{Metrics: server.Options{BindAddress: "0"}})
	if err != nil {
		return err
	}
	if err := ctrl.NewControllerManagedBy(manager).For(&corev1.Pod{}).Complete(&reconciler{
		Client: manager.GetClient(),
	}); err != nil {
		return err
	}
	return manager.Start(ctx)
}

// reconciler is called for one Pod at a time.
type reconciler struct {
	client.Client
	refused bool
}

func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	var pod corev1.Pod
	switch err := r.Get(ctx, request.NamespacedName, &pod); {
	case apierrors.IsNotFound(err):
		fmt.Println(request, "gone")
		return ctrl.Result{}, nil
	case err != nil:
		return ctrl.Result{}, err
	}
	fmt.Println(request, pod.ResourceVersion, pod.Status.Phase)
	if r.refused {
		return ctrl.Result{}, nil
	}
	r.refused = true
	changed := pod.DeepCopy()
	changed.Labels = map[string]string{"reconciled": "true"}
	fmt.Println("update:", apierrors.ReasonForError(r.Update(ctx, changed)))
	return ctrl.Result{}, nil
}
