// Package providerconfig has the name that `typeOf` prints.
package providerconfig

import "oracle/types/net"

// NetworkConfig is the network of a machine.
type NetworkConfig struct {
	CIDR     string       `json:"cidr"`
	Gateway  string       `json:"gateway"`
	DNS      DNSConfig    `json:"dns"`
	IPFamily net.IPFamily `json:"ipFamily,omitempty"`
}

// DNSConfig lists servers.
type DNSConfig struct {
	Servers []string `json:"servers"`
}

// IsStaticIPConfig can be called on nil.
func (n *NetworkConfig) IsStaticIPConfig() bool {
	return n != nil && (n.CIDR != "" || n.Gateway != "" || len(n.DNS.Servers) > 0)
}

// GetIPFamily can be called on nil.
func (n *NetworkConfig) GetIPFamily() net.IPFamily {
	if n == nil {
		return ""
	}
	return n.IPFamily
}
