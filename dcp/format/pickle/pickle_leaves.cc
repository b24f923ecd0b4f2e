// SPDX-License-Identifier: Apache-2.0

#include "dcp/format/pickle/pickle_leaves.h"

#include <bit>
#include <cstring>
#include <limits>
#include <optional>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "dcp/base/limits.h"
#include "dcp/base/status.h"
#include "dcp/format/pickle/pickle_text.h"

namespace dcp {
namespace {

absl::Status TakeStr(uint64_t length, PickleInput& input, ValueArena& arena,
                     Value& value) {
  absl::string_view text;
  DCP_RETURN_IF_ERROR(input.Take(length, text));
  if (length > kMaxMetadataBytes) {
    return absl::DataLossError("a str is too long");
  }
  if (!IsPickleUtf8(text)) return absl::DataLossError("a str is not UTF-8");
  value = arena.Str(text);
  return absl::OkStatus();
}

absl::Status TakeOldStr(uint64_t length, PickleInput& input, ValueArena& arena,
                        Value& value) {
  if (length > uint64_t{std::numeric_limits<int32_t>::max()}) {
    return absl::DataLossError("a str has a negative length");
  }
  return TakeStr(length, input, arena, value);
}

absl::Status MakeInt(absl::string_view little_endian, ValueArena& arena,
                     Value& value) {
  if (little_endian.size() > kMaxPickleIntBytes) {
    return absl::DataLossError(absl::StrCat("an int of ", little_endian.size(),
                                            " bytes exceeds ",
                                            kMaxPickleIntBytes));
  }
  little_endian = ShortestInt(little_endian);
  if (little_endian.size() > sizeof(int64_t)) {
    value = arena.BigInt(little_endian);
    return absl::OkStatus();
  }
  uint64_t bits = 0;
  std::memcpy(&bits, little_endian.data(), little_endian.size());
  const bool negative = !little_endian.empty() &&
                        (static_cast<uint8_t>(little_endian.back()) & 0x80);
  if (negative && little_endian.size() < sizeof(bits)) {
    bits |= ~uint64_t{0} << (8 * little_endian.size());
  }
  value = Value::Int(static_cast<int64_t>(bits));
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadScalar(uint8_t opcode, PickleInput& input, ValueArena& arena,
                        Value& value) {
  uint64_t number = 0;
  absl::string_view text;
  switch (opcode) {
    case 'N':
      value = Value();
      return absl::OkStatus();
    case 0x88:  // NEWTRUE
    case 0x89:  // NEWFALSE
      value = Value::Bool(opcode == 0x88);
      return absl::OkStatus();
    case 'K':  // BININT1
      DCP_RETURN_IF_ERROR(input.TakeNumber<uint8_t>(number));
      break;
    case 'M':  // BININT2
      DCP_RETURN_IF_ERROR(input.TakeNumber<uint16_t>(number));
      break;
    case 'J':  // BININT
      DCP_RETURN_IF_ERROR(input.TakeNumber<int32_t>(number));
      break;
    case 0x8a:  // LONG1
      DCP_RETURN_IF_ERROR(input.TakeNumber<uint8_t>(number));
      DCP_RETURN_IF_ERROR(input.Take(number, text));
      return MakeInt(text, arena, value);
    case 0x8b:  // LONG4; a negative length reads as too many bytes
      DCP_RETURN_IF_ERROR(input.TakeNumber<uint32_t>(number));
      DCP_RETURN_IF_ERROR(input.Take(number, text));
      return MakeInt(text, arena, value);
    default:  // BINFLOAT, big-endian
      DCP_RETURN_IF_ERROR(input.TakeNumber<uint64_t>(number));
      value = Value::Float(std::bit_cast<double>(__builtin_bswap64(number)));
      return absl::OkStatus();
  }
  value = Value::Int(static_cast<int64_t>(number));
  return absl::OkStatus();
}

absl::Status ReadText(uint8_t opcode, PickleInput& input, ValueArena& arena,
                      Value& value) {
  uint64_t length = 0;
  switch (opcode) {
    case 'X':  // BINUNICODE
      DCP_RETURN_IF_ERROR(input.TakeNumber<uint32_t>(length));
      return TakeStr(length, input, arena, value);
    case 0x8c:  // SHORT_BINUNICODE
      DCP_RETURN_IF_ERROR(input.TakeNumber<uint8_t>(length));
      return TakeStr(length, input, arena, value);
    case 0x8d:  // BINUNICODE8
      DCP_RETURN_IF_ERROR(input.TakeNumber<uint64_t>(length));
      return TakeStr(length, input, arena, value);
    case 'U':  // SHORT_BINSTRING, a str in Python 2
      DCP_RETURN_IF_ERROR(input.TakeNumber<uint8_t>(length));
      return TakeOldStr(length, input, arena, value);
    case 'T':  // BINSTRING
      DCP_RETURN_IF_ERROR(input.TakeNumber<uint32_t>(length));
      return TakeOldStr(length, input, arena, value);
    case 'C':  // SHORT_BINBYTES
      DCP_RETURN_IF_ERROR(input.TakeNumber<uint8_t>(length));
      break;
    case 'B':  // BINBYTES
      DCP_RETURN_IF_ERROR(input.TakeNumber<uint32_t>(length));
      break;
    default:  // BINBYTES8, BYTEARRAY8
      DCP_RETURN_IF_ERROR(input.TakeNumber<uint64_t>(length));
      break;
  }
  absl::string_view text;
  DCP_RETURN_IF_ERROR(input.Take(length, text));
  if (length > kMaxMetadataBytes) {
    return absl::DataLossError("bytes are too long");
  }
  value = arena.Bytes(text);
  return absl::OkStatus();
}

absl::Status ReadLine(uint8_t opcode, PickleInput& input, ValueArena& arena,
                      Value& value) {
  absl::string_view line;
  DCP_RETURN_IF_ERROR(input.TakeLine(line));
  switch (opcode) {
    case 'I':  // INT; protocol 0 also uses it for True and False
      if (line == "00" || line == "01") {
        value = Value::Bool(line == "01");
        return absl::OkStatus();
      }
      [[fallthrough]];
    case 'L': {  // LONG
      if (opcode == 'L') line = absl::string_view(absl::StripSuffix(line, "L"));
      const std::optional<std::string> bytes = ParseDecimalInt(line);
      if (!bytes.has_value()) {
        return absl::DataLossError("a line is not an int");
      }
      return MakeInt(*bytes, arena, value);
    }
    case 'F': {  // FLOAT
      double number;
      if (!absl::SimpleAtod(line, &number)) {
        return absl::DataLossError("a line is not a float");
      }
      value = Value::Float(number);
      return absl::OkStatus();
    }
    default: {  // STRING, UNICODE
      const std::optional<std::string> text =
          opcode == 'S' ? ParseQuotedString(line) : ParseRawUnicode(line);
      if (!text.has_value() || !IsPickleUtf8(*text)) {
        return absl::DataLossError("a line is not a str");
      }
      value = arena.Str(*text);
      return absl::OkStatus();
    }
  }
}

}  // namespace dcp
