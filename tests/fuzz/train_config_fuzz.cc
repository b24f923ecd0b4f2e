// SPDX-License-Identifier: Apache-2.0
// Reads any text as a training config in each syntax. A config that is read
// without a problem is written in each dialect, and must be the same when it is
// read again, except for the differences that the writer reported.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "config/dialect_table.h"
#include "config/document/findings.h"
#include "config/model/train_config.h"
#include "config/read_config.h"
#include "config/to_fsdp2/to_fsdp2.h"
#include "config/write_config.h"
#include "dcp/base/check.h"

namespace fsdp {
namespace {

constexpr std::array<std::pair<ConfigDialect, absl::string_view>, 4> kDialects =
    {{
        {ConfigDialect::kAccelerate, "config.yaml"},
        {ConfigDialect::kTransformers, "config.json"},
        {ConfigDialect::kComposer, "config.yaml"},
        {ConfigDialect::kTorchTitan, "config.toml"},
    }};

void CheckWritten(const TrainConfig& config, ConfigDialect dialect,
                  absl::string_view name) {
  Findings findings;
  const std::string written = write_config(config, dialect, findings);
  // A mesh that the dialect cannot express.
  DCP_CHECK(written.empty() == findings.has_problems(), dialect_name(dialect));
  if (written.empty()) return;
  const ReadConfig again = read_config_text(name, written);
  DCP_CHECK(!again.findings.has_problems(), again.findings.ToStatus().message(),
            "\n", written);
  DCP_CHECK(again.dialect == dialect, dialect_name(dialect), "\n", written);
  const bool is_same = same_training(config, again.config);
  DCP_CHECK(is_same || !findings.list().empty(), dialect_name(dialect), "\n",
            written);
}

void ReadAndWrite(absl::string_view name, absl::string_view text) {
  (void)to_fsdp2(name, text);
  const ReadConfig read = read_config_text(name, text);
  if (read.findings.has_problems()) return;
  for (const auto& [dialect, written_name] : kDialects) {
    CheckWritten(read.config, dialect, written_name);
  }
}

}  // namespace
}  // namespace fsdp

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  for (absl::string_view name :
       {"config.yaml", "config.json", "config.toml", "config.py", "config"}) {
    fsdp::ReadAndWrite(name, text);
  }
  return 0;
}
