#include "data/text_reader.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "formats/json_lines.h"

namespace fourfold {
namespace {

bool ends_with_any(const std::string& path, std::initializer_list<const char*> ends) {
  return std::ranges::any_of(ends, [&](const char* end) { return path.ends_with(end); });
}

}  // namespace

TextReader::TextReader(std::vector<std::string> files, std::string json_field,
                       std::size_t piece_bytes)
    : files_(std::move(files)), json_field_(std::move(json_field)), piece_bytes_(piece_bytes) {
  if (files_.empty()) {
    throw Error(ErrorKind::kUsage, "no input files", "name text or .jsonl files after --input");
  }
}

void TextReader::open_next() {
  const std::string& path = files_[opened_++];
  if (ends_with_any(path, {".gz", ".zst", ".xz", ".bz2", ".zip", ".parquet", ".arrow"})) {
    throw Error(ErrorKind::kData, path + ": neither text nor JSON lines",
                "unpack or convert it to .txt or .jsonl first");
  }
  file_ = open_for_reading(path).value();
  size_ = file_size(file_, path).value();
  if (size_ == 0) {
    throw Error(ErrorKind::kData, path + ": empty file", "leave it out, or write text into it");
  }
  is_json_ = ends_with_any(path, {".jsonl", ".ndjson"});
  offset_ = 0;
  buffer_.clear();
  at_ = 0;
  line_ = 0;
}

bool TextReader::next(TextPiece& piece) {
  for (;;) {
    if (opened_ > 0 && (is_json_ ? next_json(piece) : next_text(piece))) return true;
    if (opened_ == files_.size()) return false;
    open_next();
  }
}

bool TextReader::next_text(TextPiece& piece) {
  if (offset_ == size_) return false;
  piece.text.resize(std::min<std::uint64_t>(piece_bytes_, size_ - offset_));
  const auto bytes = std::as_writable_bytes(std::span(piece.text));
  (void)read_exactly(file_, files_[opened_ - 1], offset_, bytes).value();
  offset_ += piece.text.size();
  piece.ends_document = offset_ == size_;
  return true;
}

bool TextReader::fill_buffer() {
  if (offset_ == size_) return false;
  buffer_.erase(0, at_);
  at_ = 0;
  const std::size_t before = buffer_.size();
  buffer_.resize(before + std::min<std::uint64_t>(piece_bytes_, size_ - offset_));
  const auto bytes = std::as_writable_bytes(std::span(buffer_)).subspan(before);
  (void)read_exactly(file_, files_[opened_ - 1], offset_, bytes).value();
  offset_ += bytes.size();
  return true;
}

bool TextReader::next_json(TextPiece& piece) {
  std::size_t searched = 0;
  for (;;) {
    std::size_t end = buffer_.find('\n', at_ + searched);
    if (end == std::string::npos) {
      searched = buffer_.size() - at_;
      if (searched <= kMaxLineBytes && fill_buffer()) continue;
      if (searched == 0) return false;
      end = buffer_.size();
    }
    searched = 0;
    const std::string_view line(buffer_.data() + at_, end - at_);
    at_ = std::min(end + 1, buffer_.size());
    ++line_;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    auto text = line.size() > kMaxLineBytes
                    ? Error(ErrorKind::kData, fmt::format("longer than {} bytes", kMaxLineBytes))
                    : json_string_member(line, json_field_);
    if (!text) {
      throw Error(ErrorKind::kData,
                  fmt::format("{}:{}: {}", files_[opened_ - 1], line_, text.error().what()),
                  fmt::format("each line must be an object with the text in \"{}\"", json_field_));
    }
    if (text.value().empty()) continue;
    piece = {std::move(text).value(), /*ends_document=*/true};
    return true;
  }
}

TextTotals count_text(const std::vector<std::string>& files, const std::string& json_field,
                      std::int64_t enough_documents) {
  TextTotals totals;
  for (const std::string& file : files) {
    TextReader reader({file}, json_field);
    reader.open_next();
    if (!reader.is_json_) {
      totals.documents += 1;
      totals.bytes += static_cast<std::int64_t>(reader.size_);
    }
    for (TextPiece piece; reader.is_json_ && reader.next(piece);) {
      totals.documents += 1;
      totals.bytes += static_cast<std::int64_t>(piece.text.size());
      if (totals.documents >= enough_documents) break;
    }
    if (totals.documents >= enough_documents) break;
  }
  return totals;
}

}  // namespace fourfold
