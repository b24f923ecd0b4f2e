// A Python file with a dict, as Composer's documentation shows configs, as
// YAML: assignments become keys. No Python runs. Pure; any thread.
#ifndef FSDP_CONFIG_PYTHON_DICT_H_
#define FSDP_CONFIG_PYTHON_DICT_H_

#include <string>

#include "absl/strings/string_view.h"

namespace fsdp::config {

// Lines `name = value` as `name: value`, `import` lines blank, the rest as it
// is: a dict literal is a map of YAML in braces, with its comments. Lines and,
// within literals, columns stay where they are.
std::string PythonDictAsYaml(absl::string_view text);

}  // namespace fsdp::config

#endif  // FSDP_CONFIG_PYTHON_DICT_H_
