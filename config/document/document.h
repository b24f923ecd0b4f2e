// SPDX-License-Identifier: Apache-2.0
// A config's text as a tree, with its problems among the findings. Any thread.
#ifndef CONFIG_DOCUMENT_DOCUMENT_H_
#define CONFIG_DOCUMENT_DOCUMENT_H_

#include "absl/strings/string_view.h"
#include "config/document/findings.h"
#include "document/document.h"
#include "document/node.h"

namespace fsdp::config {

using dcp::document::Node;
using dcp::document::Syntax;

// As dcp::document::Parse.
Node ParseDocument(absl::string_view name, absl::string_view text,
                   Syntax syntax, Findings& findings);

}  // namespace fsdp::config

#endif  // CONFIG_DOCUMENT_DOCUMENT_H_
