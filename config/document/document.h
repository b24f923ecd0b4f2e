// SPDX-License-Identifier: Apache-2.0
// Document: a YAML, JSON or TOML text as one tree with scalars, lists and maps,
// each with a place. The text may be hostile: size, depth and the number of
// nodes (YAML's aliases multiply) are bounded. Any thread.
#ifndef CONFIG_DOCUMENT_DOCUMENT_H_
#define CONFIG_DOCUMENT_DOCUMENT_H_

#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "config/document/findings.h"
#include "config/document/node.h"

namespace fsdp::config {

// A config has some kilobytes; this bounds the cost of a mistake or an attack.
// node.h has the other bounds.
inline constexpr size_t kMaxDocumentBytes = size_t{1} << 20;

enum class Syntax : uint8_t { kYaml, kJson, kToml };

// The types of plain scalars follow the syntax: YAML 1.1 as PyYAML reads it
// (yes, no, on, off are booleans, ~ is null); a plain None is null too, because
// Python dicts are read as YAML. A map with one key twice is a problem, and so
// is more than one YAML document. The root is a map; an empty text is an empty
// map. Problems go to `findings`; a text that breaks the syntax gives one, and
// an empty map.
Node ParseDocument(absl::string_view name, absl::string_view text,
                   Syntax syntax, Findings& findings);

// For ParseDocument; they are in yaml_document.cc, json_document.cc and
// toml_document.cc. Each returns the tree, or adds one problem.
Node ParseYaml(absl::string_view name, absl::string_view text,
               Findings& findings);
Node ParseJson(absl::string_view name, absl::string_view text,
               Findings& findings);
Node ParseToml(absl::string_view name, absl::string_view text,
               Findings& findings);

}  // namespace fsdp::config

#endif  // CONFIG_DOCUMENT_DOCUMENT_H_
