// Package ubuntu has the name that `typeOf` prints.
package ubuntu

// Config is the spec of the operating system.
type Config struct {
	DistUpgradeOnBoot bool `json:"distUpgradeOnBoot"`
}
