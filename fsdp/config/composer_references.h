// LLM Foundry's files are read by OmegaConf, where "${variables.seed}" stands
// for the value at that path. For ReadComposer. Any thread.
#ifndef FSDP_CONFIG_COMPOSER_REFERENCES_H_
#define FSDP_CONFIG_COMPOSER_REFERENCES_H_

#include "fsdp/config/document.h"

namespace fsdp::config {

// The tree with each scalar that is nothing but a reference replaced by the
// scalar it names; places stay. What names nothing, or no scalar, stays as it
// is, and reads as a string.
Node ResolveReferences(const Node& root);

}  // namespace fsdp::config

#endif  // FSDP_CONFIG_COMPOSER_REFERENCES_H_
