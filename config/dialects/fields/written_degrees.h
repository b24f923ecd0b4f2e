// SPDX-License-Identifier: Apache-2.0
// How the writers write a mesh. A degree is a problem if the program cannot
// have it, or gives it other ranks: the file would train something else. Pure;
// any thread.
#ifndef CONFIG_DIALECTS_FIELDS_WRITTEN_DEGREES_H_
#define CONFIG_DIALECTS_FIELDS_WRITTEN_DEGREES_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "config/document/findings.h"
#include "config/document/setting.h"
#include "config/model/train_config.h"

namespace fsdp::config {

// The model's copies as a number: kReplicateOverRest means those that the other
// degrees leave of num_processes. Adds a problem, and returns 1, if that number
// is not known; `program` needs it.
int64_t WrittenCopies(absl::string_view program, const MeshConfig& mesh,
                      Findings& findings);

// The sizes in accelerate's or transformers' parallelism_config; one without a
// value is not written. If all are 1, the whole map is left out.
struct WrittenDegrees {
  int64_t dp_replicate_size = 1;
  std::optional<int64_t> dp_shard_size;
  int64_t tp_size = 1;
  int64_t cp_size = 1;
  // Absent where it is the program's default.
  std::optional<std::string> cp_method;

  bool is_plain() const {
    return dp_replicate_size == 1 && tp_size == 1 && cp_size == 1 &&
           !dp_shard_size.has_value();
  }
};
// For a mesh with shards.
WrittenDegrees WrittenSizes(absl::string_view program, const MeshConfig& mesh,
                            Findings& findings);

// The mesh's context_parallel_method, for a program with allgather, which is
// its default, and alltoall. Nothing if it is not written.
std::optional<std::string> WrittenContextMethod(absl::string_view program,
                                                const MeshConfig& mesh,
                                                Findings& findings);

// Whether FSDP has no ranks to shard over, so that accelerate, transformers and
// Composer train copies (DDP), or are without FSDP for another reason.
bool IsWithoutShards(const MeshConfig& mesh);

// For a mesh without shards: adds a problem if copies are also cut by tensor
// parallelism, which none of these programs does.
void RefuseCutCopies(absl::string_view program, const MeshConfig& mesh,
                     Findings& findings);

// Adds a problem if the degree is not 1, for a program that has no option for
// it. `name` is the setting's name.
void RefuseDegree(absl::string_view program, const Setting<int64_t>& degree,
                  absl::string_view name, Findings& findings);
// Adds a problem for kShardWithinNode, which none of the programs can express.
void RefuseShardsWithinNode(absl::string_view program, const MeshConfig& mesh,
                            Findings& findings);

}  // namespace fsdp::config

#endif  // CONFIG_DIALECTS_FIELDS_WRITTEN_DEGREES_H_
