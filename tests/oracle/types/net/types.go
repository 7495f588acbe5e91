// Package net has the name that `typeOf` prints.
package net

// IPFamily is a string of a type of its own.
type IPFamily string

// HasIPv4 reports whether machines get IPv4 addresses.
func (f IPFamily) HasIPv4() bool { return f == "" || f == "IPv4" || f.IsDualstack() }

// HasIPv6 reports whether machines get IPv6 addresses.
func (f IPFamily) HasIPv6() bool { return f == "IPv6" || f.IsDualstack() }

// IsDualstack reports whether machines get both.
func (f IPFamily) IsDualstack() bool { return f == "IPv4+IPv6" || f == "IPv6+IPv4" }
