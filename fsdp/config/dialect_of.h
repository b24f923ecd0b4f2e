// Which syntax and which dialect a config has, from its name and what it says.
// For read_config. Pure; any thread.
#ifndef FSDP_CONFIG_DIALECT_OF_H_
#define FSDP_CONFIG_DIALECT_OF_H_

#include <optional>

#include "absl/strings/string_view.h"
#include "fsdp/config/document.h"
#include "fsdp/config/train_config.h"

namespace fsdp::config {

// Of a name that ends in none of .toml, .json, .yaml and .yml the text
// decides.
Syntax SyntaxOf(absl::string_view name, absl::string_view text);

// A config that could be of several dialects, such as {"fsdp_config": {}}, is
// one of transformers.
std::optional<Dialect> DialectOf(absl::string_view name, const Node& root);

}  // namespace fsdp::config

#endif  // FSDP_CONFIG_DIALECT_OF_H_
