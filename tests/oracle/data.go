package main

import (
	"net"
	"time"

	"oracle/types/amzn2"
	"oracle/types/flatcar"
	"oracle/types/providerconfig"
	"oracle/types/rhel"
	"oracle/types/rockylinux"
	"oracle/types/ubuntu"
	metav1 "oracle/types/v1"
	"oracle/types/v1alpha1"
)

// Data is what templates read, with the types that profiles were written for.
type Data struct {
	KubeVersion, KubeletConfiguration, KubeletSystemdUnit, BootstrapKubeconfig string
	InTreeCCMAvailable                                                         bool
	CNIVersion                                                                 string
	ClusterDNSIPs                                                              []net.IP
	KubernetesCACert, HostCACert, ServerAddress, CloudConfig, ContainerRuntime string
	CloudProviderName                                                          v1alpha1.CloudProvider
	NetworkConfig                                                              *providerconfig.NetworkConfig
	ExternalCloudProvider                                                      bool
	PauseImage, InitialTaints                                                  string
	HTTPProxy, NoProxy                                                         *string
	ContainerRuntimeConfig, ContainerRuntimeAuthConfig                         string
	KubeletFeatureGates                                                        map[string]bool
	RHSubscription                                                             map[string]string
	NetworkIPFamily                                                            string

	KubeReserved, SystemReserved, EvictionHard              *map[string]string
	MaxPods                                                 *int32
	ContainerLogMaxSize, ContainerLogMaxFiles               *string
	ImageGCHighThresholdPercent, ImageGCLowThresholdPercent *int32
	ImageMinimumGCAge, ImageMaximumGCAge                    *metav1.Duration

	AmazonLinuxConfig amzn2.Config
	FlatcarConfig     flatcar.Config
	RhelConfig        rhel.Config
	UbuntuConfig      ubuntu.Config
	RockyLinuxConfig  rockylinux.Config

	Token, ServerURL, SecretName, BootstrapKubeconfigSecretName string
}

func pointer[T any](value T) *T { return &value }

// data is what the cases of cases.txt and profiles.json read.
func data() *Data {
	return &Data{
		KubeVersion:           "v1.34.1",
		ClusterDNSIPs:         []net.IP{net.ParseIP("10.0.0.10"), net.ParseIP("fd00::a")},
		CloudProviderName:     "aws",
		ExternalCloudProvider: true,
		HTTPProxy:             pointer("http://proxy.example.com:3128"),
		KubeletFeatureGates:   map[string]bool{"B": false, "A": true, "C": true},
		KubeReserved:          &map[string]string{"memory": "1Gi", "cpu": "200m"},
		SystemReserved:        &map[string]string{},
		MaxPods:               pointer(int32(110)),
		ImageMinimumGCAge:     &metav1.Duration{Duration: 90 * time.Second},
		ContainerLogMaxSize:   pointer(""),
	}
}

// filled has everything that data lacks.
func filled() *Data {
	made := data()
	made.KubeVersion = "v1.34.1-rc.2"
	made.NetworkConfig = &providerconfig.NetworkConfig{
		CIDR:     "10.1.0.2/24",
		Gateway:  "10.1.0.1",
		DNS:      providerconfig.DNSConfig{Servers: []string{"10.1.0.3", "10.1.0.4"}},
		IPFamily: "IPv4+IPv6",
	}
	made.NetworkIPFamily = "IPv4+IPv6"
	made.NoProxy = pointer("localhost,10.0.0.0/8")
	made.EvictionHard = &map[string]string{"memory.available": "100Mi"}
	made.ImageGCHighThresholdPercent = pointer(int32(85))
	made.ImageGCLowThresholdPercent = pointer(int32(0))
	// Short, since some cases count to it.
	made.ImageMinimumGCAge = &metav1.Duration{Duration: 90 * time.Nanosecond}
	made.ImageMaximumGCAge = &metav1.Duration{}
	made.ContainerLogMaxSize = pointer("3.9")
	made.ContainerLogMaxFiles = pointer("5")
	made.FlatcarConfig = flatcar.Config{DisableAutoUpdate: true, ProvisioningUtility: "ignition"}
	made.CloudConfig = "a: [b]\n"
	made.ContainerRuntime = "containerd"
	made.ContainerRuntimeConfig = "[a]\nb = 1\n"
	made.InitialTaints = "k=v:NoSchedule"
	made.PauseImage = "pause:3.10"
	made.BootstrapKubeconfig = "{\"a\": [1]}"
	made.KubernetesCACert = "CA <&> \"ä\""
	made.HostCACert = "0x1F"
	made.Token = "-7"
	made.ServerURL = "https://u:p@h.example.com:6443/a?b=c#d"
	made.SecretName = "a-b-c"
	made.BootstrapKubeconfigSecretName = "true"
	return made
}
