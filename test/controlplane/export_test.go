package controlplane

// BuildFrom is Build for any module that requires k8s.io/kubernetes, into any directory.
var BuildFrom = build

// ErrPortTaken is the error after which Start tries another port.
var ErrPortTaken = errPortTaken
