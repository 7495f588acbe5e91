// Package rhel has the name that `typeOf` prints.
package rhel

// Config is the spec of the operating system.
type Config struct {
	DistUpgradeOnBoot               bool   `json:"distUpgradeOnBoot"`
	RHELSubscriptionManagerUser     string `json:"rhelSubscriptionManagerUser,omitempty"`
	RHELSubscriptionManagerPassword string `json:"rhelSubscriptionManagerPassword,omitempty"`
	RHSMOfflineToken                string `json:"rhsmOfflineToken,omitempty"`
	AttachSubscription              bool   `json:"attachSubscription"`
	RHELUseSatelliteServer          bool   `json:"rhelUseSatelliteServer"`
	RHELSatelliteServer             string `json:"rhelSatelliteServer"`
	RHELOrganizationName            string `json:"rhelOrganizationName"`
	RHELActivationKey               string `json:"rhelActivationKey"`
}
