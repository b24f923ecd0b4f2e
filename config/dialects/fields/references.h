// SPDX-License-Identifier: Apache-2.0
// OmegaConf reads the files of LLM Foundry, torchtune and verl, where
// "${variables.seed}" stands for the value at that path. For their readers. Any
// thread.
#ifndef CONFIG_DIALECTS_FIELDS_REFERENCES_H_
#define CONFIG_DIALECTS_FIELDS_REFERENCES_H_

#include "config/document/document.h"

namespace fsdp::config {

// Returns the tree with references replaced; places stay. A scalar that
// consists only of a reference becomes the scalar that the reference names, and
// a reference within a longer text becomes that scalar's text. If any reference
// in a text names nothing, or something other than a scalar, the text stays
// unchanged and reads as a string.
Node ResolveReferences(const Node& root);

}  // namespace fsdp::config

#endif  // CONFIG_DIALECTS_FIELDS_REFERENCES_H_
