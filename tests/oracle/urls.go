package main

import "net/url"

// urls pairs each spelling of one part of a URL with each of every other part.
func urls() [][2]any {
	parts := [][]string{
		{"https://", "HTTPS://", "http://", "", "ht tp://", "://", "https:", "https:/"},
		{"", "u@", "u:p@", "u:p@s@", "U%40:%2f%C3%A9@", "a b@", "u:é@", ":@", "u:!*'(),;=$&+~@", "%zz@"},
		{
			"mirror.example.com", "Mirror:5000", "10.0.0.1:5000", "[::1]:5000", "[fe80::1]", "h:port", "h:",
			"a b", "bücher.example", "a%20b", "*", "", "[::1", "[x]:1", "a:1:2",
		},
		{
			"", "/", "/v2/proxy", "/a b", "/a%20b", "/a%2Fb c", "/ü", "/%C3%BC", "/a[1]{2}", "/%zz", "/a\"b",
			"/a:b@c!$&'()*+,;=", "/a|b!(c)*d'e", "/a\\b^c`d<e>", "/a\tb", "/%", "//x",
		},
		{"", "?", "?x=1&a=b c", "?a=%zz", "?kubermatic=override_path%3Dtrue"},
	}
	seen := map[string]bool{}
	rows := [][2]any{}
	for left := range parts {
		for right := left + 1; right < len(parts); right++ {
			for _, one := range parts[left] {
				for _, other := range parts[right] {
					text := ""
					for index, spellings := range parts {
						switch index {
						case left:
							text += one
						case right:
							text += other
						default:
							text += spellings[0]
						}
					}
					if seen[text] {
						continue
					}
					seen[text] = true
					var written any
					if read, err := url.Parse(text); err == nil {
						written = read.String()
					}
					rows = append(rows, [2]any{text, written})
				}
			}
		}
	}
	return rows
}
