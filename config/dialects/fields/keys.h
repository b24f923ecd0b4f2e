// SPDX-License-Identifier: Apache-2.0
// Keys that several dialects read alike. For their readers. Any thread.
#ifndef CONFIG_DIALECTS_FIELDS_KEYS_H_
#define CONFIG_DIALECTS_FIELDS_KEYS_H_

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "config/document/section.h"
#include "config/document/setting.h"

namespace fsdp::config {

// Known keys that do not get a finding: they say how to do something that other
// keys switch on.
void PassOver(Section& section, std::initializer_list<absl::string_view> keys);

// Adds an ignored finding if a switch is on.
void IgnoreWhenOn(Section& section, absl::string_view key,
                  absl::string_view reason);

// The spelling that the file uses, the newest or an older one; both are a
// problem.
absl::string_view Spelling(Section& section,
                           const std::vector<absl::string_view>& names);

// Reads a degree of at least `least`, which is 1, or -1 if that means the rest
// of the ranks. 0 is a problem: it means neither.
void ReadDegree(Section& section, absl::string_view key, int64_t least,
                Setting<int64_t>& degree);

// Reads how attention gets keys and values under context parallelism: allgather
// or alltoall.
void ReadContextMethod(Section& section, absl::string_view key,
                       Setting<std::string>& method);

// Why a key that names adapters or quantized weights has no effect.
inline constexpr absl::string_view kProgramMakesModel =
    "the program makes its model, adapters and quantized weights included; "
    "without that all parameters are trained";

}  // namespace fsdp::config

#endif  // CONFIG_DIALECTS_FIELDS_KEYS_H_
