// Package wording has what texts for people share: how numbers are written, and which of some names
// a word probably means. It imports nothing of kubecdc and prints nothing.
package wording
