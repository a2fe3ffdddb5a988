package controlplane

// BuildFrom is Build of any module that requires k8s.io/kubernetes, into any directory.
var BuildFrom = build

// ErrPortTaken is what Start answers with another port.
var ErrPortTaken = errPortTaken
