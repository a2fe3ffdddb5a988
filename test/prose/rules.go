package main

import (
	"fmt"
	"regexp"
	"strings"
)

// longest is how many words a sentence may have. The aim is 25.
const longest = 30

// finding is a sentence that breaks a rule.
type finding struct {
	file string
	sentence
	rule string
}

func (f finding) String() string {
	return fmt.Sprintf("%s:%d: %s\n\t%s", f.file, f.line, f.rule, f.text)
}

// rule is a phrase that a sentence must not have.
type rule struct {
	name   string
	bad    *regexp.Regexp
	except *regexp.Regexp // allowed where this matches the same phrase with a few words on either side; nil: never
}

func phrase(name, bad, except string) rule {
	r := rule{name: name, bad: regexp.MustCompile(bad)}
	if except != "" {
		r.except = regexp.MustCompile(except)
	}
	return r
}

var rules = []rule{
	phrase("subject: begin with the actor, not with a clause", `^(?:What|Who|Whoever|Whatever|Of|Where)\s`,
		`\?$|^(?:What|Who) [^,.;]*:|^Of the \w+|^(?:Of|Where) (?:returns|reports|identifies)\b`),
	phrase("subject: name the thing instead of \"what\"",
		`(?i)\bwhat (?:of|has (?:gone|come))\b|\bof what (?:is|has|was|it|they)\b`, ""),
	phrase("told: use reports, distinguishes, prints, sends", `(?i)\b(?:tells?|told|telling)\b`, ""),
	phrase("behind: use after, or followed by", `(?i)\bbehind (?:it|them|which|that|the|a|an|its|every|each)\b`,
		`(?i)\bbehind (?:the|a|an|its|each|every)(?: \S+){0,2} (?:proxy|proxies|load balancer|balancer|firewall|address|ingress|gateway|service|mesh|name|socket|nat|tunnel)\b|\b(?:batch(?:es)?|events?|versions?|far|falls?|lags?) behind\b`),
	phrase("of it: name the thing", `(?i)\bof it\b`,
		`(?i)\b(?:all|one|each|none|most|both|any|some|much|many|half|third|quarter|end|copy|part|parts|rest|because|instead|out|front|ahead|top|first|last|middle|sense|use|\d%?) of it\b`),
	phrase("name: use the standard term",
		`(?i)\b(?:burials?|buried|farewells?|departed|departures?|heirs?|acquit(?:ted)?|innocent|lookouts?|prodded|patience|goodbye|is born|are born|its birth|births|orphans?|heir)\b`,
		""),
	phrase("personification: programs store, report and receive",
		`(?i)\b(?:remembers|remembered|remember|forgets|forgot|forgotten|hears?|heard|knows of|notices|noticed|(?:gives?|gave|takes?|given|giving|taking) (?:it |them )?orders|silence from death|looks? on|looked on|looks? after|looked after|sees to it|see to it|stands? by|stood by)\b`,
		`\b(?:the|of) notices\b`),
	phrase("goes on: use continues or resumes", `(?i)\b(?:goes|go|went|going|gone) on\b`, ""),
	phrase("archaic: use start over, unless, repair",
		`(?i)\b(?:anew|lest|thereof|whereof|wherein|hereby|for want of|mends?|mended|but for|save for|likewise|as it were)\b`,
		""),
	phrase("taken for: use counts as, is treated as",
		`(?i)\b(?:taken|takes|took|take) (?:\w+ ){0,5}for (?:safe|new|one|dead|granted)\b|\btaken for\b`, ""),
}

var (
	word        = regexp.MustCompile(`[\pL\pN]`)
	parenthesis = regexp.MustCompile(`\([^()]*\)`)
)

// check finds what is wrong with the sentences of the block. Words in parentheses are not counted.

func (b block) check(file string) []finding {
	var found []finding
	for _, s := range b.sentences() {
		words := 0
		for _, w := range strings.Fields(parenthesis.ReplaceAllString(s.text, "")) {
			if word.MatchString(w) {
				words++
			}
		}
		if words > longest {
			found = append(found, finding{file, s, fmt.Sprintf("long: %d words, at most %d", words, longest)})
		}
		for _, r := range rules {
			if r.broken(s.text) {
				found = append(found, finding{file, s, r.name})
			}
		}
	}
	return found
}

// broken reports whether the sentence has the phrase where the exception does not allow it.
func (r rule) broken(sentence string) bool {
	for _, m := range r.bad.FindAllStringIndex(sentence, -1) {
		if r.except == nil {
			return true
		}
		allowed := false
		for _, e := range r.except.FindAllStringIndex(sentence, -1) {
			allowed = allowed || e[0] < m[1] && m[0] < e[1] || e[1] == len(sentence) && m[0] == 0
		}
		if !allowed {
			return true
		}
	}
	return false
}
