// SPDX-License-Identifier: Apache-2.0
// Copies: how data parallelism without shards (DDP) is read, for programs that
// use it unless they are told to shard. For readers and writers. Pure; any
// thread.
#ifndef CONFIG_DIALECTS_FIELDS_COPIES_H_
#define CONFIG_DIALECTS_FIELDS_COPIES_H_

#include <optional>

#include "absl/strings/string_view.h"
#include "config/document/findings.h"
#include "config/document/setting.h"
#include "config/model/train_config.h"
#include "dcp/tensor/dtype.h"

namespace fsdp::config {

// Sets the degrees so that every rank has the whole model. A changed finding at
// `place` says so; its text begins with `subject`: "is", or "has no fsdp, and
// is".
void ReadAsCopies(const SourceLocation& place, absl::string_view subject,
                  MeshConfig& mesh, Findings& findings);

// Whether a config asks for as many copies as there are ranks.
bool AreCopies(const MeshConfig& mesh);

// Replaces autocast: parameters are cast to `dtype` to compute with, and
// gradients are averaged in float32, as DDP does. Unset: nothing is cast.
void CastCopies(std::optional<dcp::DType> dtype, const SourceLocation& place,
                PrecisionConfig& precision);

}  // namespace fsdp::config

#endif  // CONFIG_DIALECTS_FIELDS_COPIES_H_
