// SPDX-License-Identifier: Apache-2.0
// A small checkpoint, cut into chunks, and rules for another spelling: a fused
// tensor, a transposed one, and one that may exist twice. One thread; steps
// that cannot fail in a sound test use DCP_CHECK.
#ifndef TESTS_DCP_CHECKPOINT_MAPPED_PAIR_H_
#define TESTS_DCP_CHECKPOINT_MAPPED_PAIR_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "dcp/checkpoint/files/map_spec.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "dcp/io/file_system.h"
#include "tests/testing/sample_state.h"

namespace dcp::testing {

// The sides are "theirs", which is stored, and "ours".
inline constexpr absl::string_view kPairRules = R"(tessera-mapping: 1
name: pair
params: {extra: 0}
sides: {theirs: , ours: }
states:
  theirs: optim.{param:**}.{slot:*}
  ours: optim.{param:**}.{slot:*}
rules:
- theirs:
  - x.q: r c
  - x.k: s c
  ours:
  - fused: (r + s) c
- theirs:
  - x.w: r c
  ours:
  - turned: c r
- theirs: emb
  ours: table
  tolerates: {theirs: [head]}
- theirs: scale
  ours: scale
  when: extra
  optional: true
)";

class MappedPair {
 public:
  // The same seed gives the same elements.
  explicit MappedPair(uint64_t seed = 1);

  // Changes an element in "head", which otherwise equals "emb", before Save.
  void TearHead(int64_t element);

  // Saves the checkpoint at `path`, every two rows as a chunk.
  void Save(FileSystem& fs, absl::string_view path) const;

  static std::shared_ptr<const MapSpec> Map(
      absl::string_view rules = kPairRules);
  // Opens it through the rules.
  static std::unique_ptr<Checkpoint> Open(FileSystem& fs,
                                          absl::string_view path,
                                          absl::string_view rules = kPairRules);

  // The rules' results, element by element.
  const std::map<std::string, SampleTensor>& made() const { return made_; }

 private:
  const SampleTensor q_;
  const SampleTensor k_;
  const SampleTensor w_;
  const SampleTensor emb_;
  SampleTensor head_;
  std::map<std::string, SampleTensor> made_;
};

}  // namespace dcp::testing

#endif  // TESTS_DCP_CHECKPOINT_MAPPED_PAIR_H_
