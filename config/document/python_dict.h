// SPDX-License-Identifier: Apache-2.0
// Converts a Python file with a dict, the form in which Composer's
// documentation shows configs, to YAML: assignments become keys. No Python
// runs. Pure; any thread.
#ifndef CONFIG_DOCUMENT_PYTHON_DICT_H_
#define CONFIG_DOCUMENT_PYTHON_DICT_H_

#include <string>

#include "absl/strings/string_view.h"

namespace fsdp::config {

// Lines `name = value` become `name: value`, `import` lines become blank, and
// the rest stays unchanged: a dict literal is a YAML map in braces, comments
// included. Lines and, within literals, columns do not move.
std::string PythonDictAsYaml(absl::string_view text);

}  // namespace fsdp::config

#endif  // CONFIG_DOCUMENT_PYTHON_DICT_H_
