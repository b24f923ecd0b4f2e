// What every dialect says where a file asks for float8: nothing computes in it
// here, while a program may send parameters so. Pure; any thread.
#ifndef FSDP_CONFIG_FLOAT8_H_
#define FSDP_CONFIG_FLOAT8_H_

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace fsdp::config {

// The reason of a problem. `instead` is what to do to the file: "write bf16".
inline std::string WithoutFloat8(absl::string_view instead) {
  return absl::StrCat(
      "nothing computes in float8 here; ", instead,
      ", and where parameters shall travel as float8 the program sets "
      "all_gather_extension_fn to give fsdp::float8_all_gather, in "
      "PrepareOptions::shard_options");
}

}  // namespace fsdp::config

#endif  // FSDP_CONFIG_FLOAT8_H_
