// Package rockylinux has the name that `typeOf` prints.
package rockylinux

// Config is the spec of the operating system.
type Config struct {
	DistUpgradeOnBoot bool `json:"distUpgradeOnBoot"`
}
