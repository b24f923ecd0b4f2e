// SPDX-License-Identifier: Apache-2.0
// Reads a YAML, JSON or TOML text as one tree with scalars, lists and maps,
// each with a place. The text may be hostile: size, depth and the number of
// nodes (YAML's aliases multiply) are bounded. Any thread.
#ifndef DOCUMENT_DOCUMENT_H_
#define DOCUMENT_DOCUMENT_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "document/node.h"
#include "document/problem.h"

namespace dcp::document {

// node.h has the other bounds.
inline constexpr size_t kMaxDocumentBytes = size_t{1} << 20;

enum class Syntax : uint8_t { kYaml, kJson, kToml };

// Reads what people have written for any program. The types of plain scalars
// follow the syntax: YAML 1.1 as PyYAML reads it (yes, no, on, off are
// booleans, ~ is null); a plain None is null too, because Python dicts are read
// as YAML. A map with one key twice is a problem, and so is more than one YAML
// document. The root is a map; an empty text is an empty map. A text that
// breaks the syntax gives one problem, and an empty map.
Node Parse(absl::string_view name, absl::string_view text, Syntax syntax,
           std::vector<Problem>& problems);

// Reads a small part of YAML. It refuses anchors, aliases, merge keys, tags and
// further documents, so the tree is no larger than the text. Numbers and truth
// values stay strings. A missing value, ~ and null without quotes are null, and
// so is an empty text. Places have no key. InvalidArgument, beginning with
// "`name`:LINE:COLUMN: ", names the first problem.
absl::StatusOr<Node> ParseStrictYaml(absl::string_view name,
                                     absl::string_view text,
                                     const StrictLimits& limits);

}  // namespace dcp::document

#endif  // DOCUMENT_DOCUMENT_H_
