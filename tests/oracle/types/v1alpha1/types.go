// Package v1alpha1 has the name that `typeOf` prints.
package v1alpha1

// CloudProvider is a string of a type of its own.
type CloudProvider string
