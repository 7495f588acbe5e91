// Package amzn2 has the name that `typeOf` prints.
package amzn2

// Config is the spec of the operating system.
type Config struct {
	DistUpgradeOnBoot bool `json:"distUpgradeOnBoot"`
}
