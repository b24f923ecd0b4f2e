// SPDX-License-Identifier: Apache-2.0
// A pickle's values without parts: None, bools, numbers, texts and bytes, each
// from an opcode and the operand behind it. Used only by the pickle reader;
// pure.
#ifndef DCP_FORMAT_PICKLE_PICKLE_LEAVES_H_
#define DCP_FORMAT_PICKLE_PICKLE_LEAVES_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "dcp/format/pickle/pickle_input.h"
#include "dcp/format/value/value.h"

namespace dcp {

// Each function below takes the operand of `opcode`, which is in the function's
// list, and sets `value`; texts are copied into `arena`. DataLoss for a
// malformed operand, and for one that is longer than limits.h allows.

// NONE, NEWTRUE, NEWFALSE, BININT, BININT1, BININT2, LONG1, LONG4, BINFLOAT.
inline constexpr absl::string_view kScalarOpcodes = "NKMJG\x88\x89\x8a\x8b";
absl::Status ReadScalar(uint8_t opcode, PickleInput& input, ValueArena& arena,
                        Value& value);

// BINUNICODE, SHORT_BINUNICODE and BINUNICODE8; BINSTRING and SHORT_BINSTRING,
// which are Python 2 texts; BINBYTES, SHORT_BINBYTES, BINBYTES8 and BYTEARRAY8,
// of which only the bytes are read.
inline constexpr absl::string_view kTextOpcodes = "XUTBC\x8c\x8d\x8e\x96";
absl::Status ReadText(uint8_t opcode, PickleInput& input, ValueArena& arena,
                      Value& value);

// INT, LONG, FLOAT, STRING and UNICODE from protocol 0, with a line as operand.
inline constexpr absl::string_view kLineOpcodes = "ILFSV";
absl::Status ReadLine(uint8_t opcode, PickleInput& input, ValueArena& arena,
                      Value& value);

}  // namespace dcp

#endif  // DCP_FORMAT_PICKLE_PICKLE_LEAVES_H_
