// SPDX-License-Identifier: Apache-2.0
// The message that every dialect gives for a file with float8: nothing here
// computes in it, though a program may send parameters in it. Pure; any thread.
#ifndef CONFIG_DIALECTS_FIELDS_FLOAT8_H_
#define CONFIG_DIALECTS_FIELDS_FLOAT8_H_

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace fsdp::config {

// The reason for a problem. `instead` says how to change the file: "write
// bf16".
inline std::string WithoutFloat8(absl::string_view instead) {
  return absl::StrCat(
      "nothing computes in float8 here; ", instead,
      ", and where parameters shall travel as float8 the program sets "
      "all_gather_extension_fn to give fsdp::float8_all_gather, in "
      "PrepareOptions::shard_options");
}

}  // namespace fsdp::config

#endif  // CONFIG_DIALECTS_FIELDS_FLOAT8_H_
