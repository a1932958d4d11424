#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "formats/file_io.h"

namespace fourfold {

/// A part of a document.
struct TextPiece {
  std::string text;
  bool ends_document = false;
};

/// What a pass over the files tells: how to split them.
struct TextTotals {
  std::int64_t documents = 0;
  std::int64_t bytes = 0;
};

/// Reads documents from files in a stream: a .jsonl file (or .ndjson) has one per line, in a string
/// member of an object; any other file is one. Empty documents are left out. Memory is bounded by
/// the piece, or by the longest JSON line (at most kMaxLineBytes). Failures throw Error: a missing,
/// empty or compressed file, a JSON line that cannot be read (with file and line number).
class TextReader {
 public:
  static constexpr std::size_t kMaxLineBytes = 1 << 28;

  TextReader(std::vector<std::string> files, std::string json_field,
             std::size_t piece_bytes = 1 << 20);

  /// The next part; false after the last.
  bool next(TextPiece& piece);

 private:
  friend TextTotals count_text(const std::vector<std::string>&, const std::string&, std::int64_t);
  void open_next();
  bool next_text(TextPiece& piece);
  bool next_json(TextPiece& piece);
  bool fill_buffer();

  std::vector<std::string> files_;
  std::string json_field_;
  std::size_t piece_bytes_;
  std::size_t opened_ = 0;  ///< Files opened so far; the last of them is read.
  FileHandle file_;
  bool is_json_ = false;
  std::uint64_t offset_ = 0;  ///< Bytes of the file read so far.
  std::uint64_t size_ = 0;
  std::string buffer_;  ///< JSON: what is read and not yet a line.
  std::size_t at_ = 0;  ///< First byte of the buffer that is not used.
  std::int64_t line_ = 0;
};

/// Counts documents and their bytes; stops when there are `enough_documents`. Of text files only
/// the size is looked at.
TextTotals count_text(const std::vector<std::string>& files, const std::string& json_field,
                      std::int64_t enough_documents);

}  // namespace fourfold
