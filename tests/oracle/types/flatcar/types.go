// Package flatcar has the name that `typeOf` prints.
package flatcar

// ProvisioningUtility is a string of a type of its own.
type ProvisioningUtility string

// Config is the spec of the operating system.
type Config struct {
	DisableAutoUpdate   bool `json:"disableAutoUpdate"`
	DisableLocksmithD   bool `json:"disableLocksmithD"`
	DisableUpdateEngine bool `json:"disableUpdateEngine"`

	ProvisioningUtility `json:"provisioningUtility,omitempty"`
}
