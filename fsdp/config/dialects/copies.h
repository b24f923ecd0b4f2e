// Copies: how data parallelism without shards (DDP) is read, for the dialects
// whose programs use it unless they are told to shard. For readers and writers.
// Pure; any thread.
#ifndef FSDP_CONFIG_DIALECTS_COPIES_H_
#define FSDP_CONFIG_DIALECTS_COPIES_H_

#include <optional>

#include "absl/strings/string_view.h"
#include "dcp/tensor/dtype.h"
#include "fsdp/config/document/findings.h"
#include "fsdp/config/document/setting.h"
#include "fsdp/config/train_config.h"

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

#endif  // FSDP_CONFIG_DIALECTS_COPIES_H_
