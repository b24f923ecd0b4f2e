// LLM Foundry's files are read by OmegaConf, where "${variables.seed}" stands
// for the value at that path. For ReadComposer. Any thread.
#ifndef CONFIG_DIALECTS_COMPOSER_REFERENCES_H_
#define CONFIG_DIALECTS_COMPOSER_REFERENCES_H_

#include "config/document/document.h"

namespace fsdp::config {

// Returns the tree in which each scalar that consists only of a reference is
// replaced by the scalar that the reference names; places stay. A reference
// that names nothing, or something other than a scalar, stays as it is and
// reads as a string.
Node ResolveReferences(const Node& root);

}  // namespace fsdp::config

#endif  // CONFIG_DIALECTS_COMPOSER_REFERENCES_H_
