// SPDX-License-Identifier: Apache-2.0
// Files of LLM Foundry, torchtune and verl are read by OmegaConf, where
// "${variables.seed}" stands for the value at that path. For their readers. Any
// thread.
#ifndef CONFIG_DIALECTS_FIELDS_REFERENCES_H_
#define CONFIG_DIALECTS_FIELDS_REFERENCES_H_

#include "config/document/document.h"

namespace fsdp::config {

// Returns the tree in which each scalar that consists only of a reference is
// replaced by the scalar that the reference names, and each reference within a
// longer text by its text; places stay. A text of which a reference names
// nothing, or something other than a scalar, stays as it is and reads as a
// string.
Node ResolveReferences(const Node& root);

}  // namespace fsdp::config

#endif  // CONFIG_DIALECTS_FIELDS_REFERENCES_H_
