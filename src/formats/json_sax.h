#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

namespace fourfold {

/// A reader of JSON events that refuses everything; a format's reader overrides what it accepts.
/// `error_` holds the first cause. Reading event by event bounds memory by the input's length and
/// sees duplicate keys, which a tree of values hides.
class JsonSax : public nlohmann::json_sax<nlohmann::json> {
 public:
  const std::string& error() const { return error_; }

  bool null() override { return unexpected("null"); }
  bool boolean(bool) override { return unexpected("a boolean"); }
  bool number_integer(number_integer_t value) override {
    return unexpected("the negative number " + std::to_string(value));
  }
  bool number_unsigned(number_unsigned_t value) override {
    return unexpected("the number " + std::to_string(value));
  }
  bool number_float(number_float_t, const string_t& text) override {
    return unexpected("the number " + text.substr(0, 32));
  }
  bool string(string_t&) override { return unexpected("a string"); }
  bool binary(binary_t&) override { return unexpected("binary data"); }
  bool start_object(std::size_t) override { return unexpected("an object"); }
  bool key(string_t&) override { return unexpected("a key"); }
  bool end_object() override { return unexpected("the end of an object"); }
  bool start_array(std::size_t) override { return unexpected("an array"); }
  bool end_array() override { return unexpected("the end of an array"); }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    return fail("not valid JSON at byte " + std::to_string(position));
  }

 protected:
  bool fail(std::string message) {
    if (error_.empty()) error_ = std::move(message);
    return false;
  }
  /// What the message of unexpected() names as the place.
  virtual std::string place() const { return ""; }

 private:
  bool unexpected(const std::string& what) {
    const std::string where = place();
    return fail((where.empty() ? "" : where + ": ") + what + " where none belongs");
  }

  std::string error_;
};

}  // namespace fourfold
