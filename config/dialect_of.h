// SPDX-License-Identifier: Apache-2.0
// Determines a config's syntax and dialect from the content; the name's suffix
// decides only the syntax. For read_config. Pure; any thread.
#ifndef CONFIG_DIALECT_OF_H_
#define CONFIG_DIALECT_OF_H_

#include <optional>

#include "absl/strings/string_view.h"
#include "config/document/document.h"
#include "config/model/train_config.h"

namespace fsdp::config {

// If the name ends in none of .toml, .json, .yaml and .yml, the text decides.
Syntax DetectSyntax(absl::string_view name, absl::string_view text);

// The map inside `root` that has the config: the root itself or, for a run of
// MosaicML's mcli, the value of `parameters`.
const Node& ConfigRoot(const Node& root);

// `root` is from ConfigRoot. One key that no other program has decides, or two
// keys that are typical of a program. A file that known_programs.h refuses has
// no dialect.
std::optional<ConfigDialect> DetectDialect(const Node& root);

// Whether a text is a program that makes TorchTitan's config, such as
// config_registry.py of version 0.3.
bool IsTorchTitanProgram(absl::string_view text);

}  // namespace fsdp::config

#endif  // CONFIG_DIALECT_OF_H_
