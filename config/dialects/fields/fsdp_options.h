// SPDX-License-Identifier: Apache-2.0
// The FSDP options as accelerate spells them: in a file, where names may begin
// with "fsdp_", in FSDP_* variables, and in transformers' fsdp_config, which
// accelerate receives. For their readers. Any thread.
#ifndef CONFIG_DIALECTS_FIELDS_FSDP_OPTIONS_H_
#define CONFIG_DIALECTS_FIELDS_FSDP_OPTIONS_H_

#include <string>

#include "absl/strings/string_view.h"
#include "config/document/findings.h"
#include "config/document/section.h"
#include "config/document/setting.h"
#include "config/model/train_config.h"
#include "dcp/tensor/dtype.h"

namespace fsdp::config {

// The key under which the section has an option, with or without the prefix; to
// have both is a problem. The section knows both names from then on.
std::string KeyWithPrefix(absl::string_view prefix, absl::string_view option,
                          Section& section);
// With or without "fsdp_".
std::string OptionKey(absl::string_view option, Section& section);

// Reads all of them except those that offload parameters, for which dialects
// have different names, and activations, which only accelerate's file has.
// Absent options leave `config` unchanged. The version and the mesh degrees
// decide how other options are read, so read those first.
void ReadFsdpOptions(Section& section, TrainConfig& config);

// Sets the dtype for parameters and gradients; the outputs follow.
void SetMixedPrecision(dcp::DType dtype, const SourceLocation& place,
                       TrainConfig& config);

// Reads accelerate's mixed_precision: no, fp32, bf16, fp16. fp8 is a problem.
void ReadMixedPrecision(absl::string_view key, Section& section,
                        TrainConfig& config);

// Adds a problem if the key is present and true.
void RefuseTrue(absl::string_view key, absl::string_view reason,
                Section& section);

}  // namespace fsdp::config

#endif  // CONFIG_DIALECTS_FIELDS_FSDP_OPTIONS_H_
