// Objects of pools, as a program gets them: frames, entries of listings, answers, and requests for them. Channel gives
// them.
//
// SPDX-License-Identifier: Apache-2.0
#ifndef OFFPATH_OBJECTS_HPP
#define OFFPATH_OBJECTS_HPP

#include <offpath/handle.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace offpath {

// Where an object lies in its pool.
struct Key {
  std::string row;
  std::string column;
};

// An object read from the agent, as read-only bytes. On one machine they are the agent's own pages, leased until this
// is destroyed.
class Frame {
 public:
  [[nodiscard]] std::span<const std::byte> bytes() const noexcept {
    return {static_cast<const std::byte*>(ofp_frame_data(frame_.get())), ofp_frame_bytes(frame_.get())};
  }
  [[nodiscard]] std::uint64_t rows() const noexcept { return ofp_frame_rows(frame_.get()); }
  [[nodiscard]] bool is_arrow() const noexcept { return ofp_frame_is_arrow(frame_.get()) != 0; }  // an Arrow IPC stream
  [[nodiscard]] bool mapped() const noexcept { return ofp_frame_mapped(frame_.get()) != 0; }

 private:
  friend class Channel;
  friend class Query;
  static std::optional<Frame> if_any(const detail::SharedChannel& channel, ofp_frame* frame) {
    return frame != nullptr ? std::optional<Frame>(Frame(channel, frame)) : std::nullopt;
  }
  static std::optional<Frame> of_request_if_any(const detail::SharedChannel& channel, ofp_request* request) {
    ofp_frame* frame = nullptr;
    detail::call([&](ofp_error* error) { return ofp_request_frame(request, &frame, error); });
    return if_any(channel, frame);
  }
  static Frame of_request(const detail::SharedChannel& channel, ofp_request* request) {
    return std::move(*of_request_if_any(channel, request));
  }
  Frame(detail::SharedChannel channel, ofp_frame* frame) : channel_(std::move(channel)), frame_(frame) {}
  detail::SharedChannel channel_;
  detail::Owned<ofp_frame> frame_;
};

// An entry of a listing.
struct Entry {
  Key key;
  std::uint64_t bytes, rows, sequence;  // rows: 0 for plain bytes
  bool is_arrow = false;
  std::string member{};  // as ofp_listing_member
};

namespace detail {

[[nodiscard]] inline std::vector<Entry> entries_of(const Owned<ofp_listing>& listing) {
  std::vector<Entry> entries;
  for (std::uint64_t i = 0; i < ofp_listing_count(listing.get()); ++i) {
    ofp_entry entry{};
    (void)ofp_listing_entry(listing.get(), i, &entry);
    entries.push_back({{entry.row_key, entry.column_key},
                       entry.bytes,
                       entry.rows,
                       entry.sequence,
                       entry.is_arrow != 0,
                       ofp_listing_member(listing.get(), i)});
  }
  return entries;
}

}  // namespace detail

// A request under way while the program continues. Destroyed before its end, it is cancelled.
template <class Result>
class Request {
 public:
  // Empty if it is not over by then. The result is returned once; Error::code() is OFP_TIMEOUT after the request's own
  // time.
  [[nodiscard]] std::optional<Result> wait(Wait wait = forever) {
    ofp_error error{};
    const int code = ofp_request_wait(request_.get(), wait.count(), &error);
    if (code == OFP_WOULD_BLOCK) return std::nullopt;
    if (code != OFP_OK) throw Error(error);
    return take_(channel_, request_.get());
  }

 private:
  friend class Channel;
  friend class Query;
  using Take = Result (*)(const detail::SharedChannel& channel, ofp_request* request);
  Request(detail::SharedChannel channel, ofp_request* request, Take take)
      : channel_(std::move(channel)), request_(request), take_(take) {}
  detail::SharedChannel channel_;
  detail::Owned<ofp_request> request_;
  Take take_;
};
using Want = Request<Frame>;

// A query as text, in the form of ofp_query_text.
struct QueryText {
  std::string filter{};                   // empty: all rows
  std::vector<std::string> columns{};     // NAME or NAME=EXPRESSION; empty: all
  std::vector<std::string> aggregates{};  // instead of columns: NAME=FUNCTION(EXPRESSION) or NAME=count
  bool partial = false, arrow_only = false;
  std::string member{};    // empty: all rows; otherwise those for which this member answers (Entry::member)
  std::uint64_t view = 0;  // with `member`, as ofp_listing_view
};

// The bytes of a query, for Channel::query. Error::code() is OFP_INVALID or OFP_TOO_LARGE.
[[nodiscard]] inline std::vector<std::byte> make_query(const QueryText& text) {
  const auto pointers = [](const std::vector<std::string>& texts) {
    std::vector<const char*> made;
    for (const std::string& each : texts) made.push_back(each.c_str());
    return made;
  };
  const std::vector<const char*> columns = pointers(text.columns), aggregates = pointers(text.aggregates);
  ofp_query_text c{};
  c.struct_bytes = sizeof c;
  if (text.partial) c.flags |= OFP_QUERY_PARTIAL;
  if (text.arrow_only) c.flags |= OFP_QUERY_ARROW_ONLY;
  c.filter = text.filter.c_str();
  c.columns = columns.data();
  c.columns_count = static_cast<std::uint32_t>(columns.size());
  c.aggregates = aggregates.data();
  c.aggregates_count = static_cast<std::uint32_t>(aggregates.size());
  c.member = text.member.empty() ? nullptr : text.member.c_str();
  c.view = text.view;
  void* query = nullptr;
  std::uint64_t query_bytes = 0;
  detail::call([&](ofp_error* error) { return ofp_query_make(&c, &query, &query_bytes, error); });
  const std::unique_ptr<void, decltype(&ofp_query_bytes_free)> made(query, ofp_query_bytes_free);
  const auto* const bytes = static_cast<const std::byte*>(query);
  return {bytes, bytes + query_bytes};
}

// The answer of a query, read frame by frame: nothing after the last one.
class Query {
 public:
  [[nodiscard]] std::optional<Frame> next() {
    ofp_frame* frame = nullptr;
    detail::call([&](ofp_error* error) { return ofp_query_next(answer_.get(), &frame, error); });
    return Frame::if_any(channel_, frame);
  }
  // One at a time. Error::code() is OFP_CLOSED after the last one.
  [[nodiscard]] Request<std::optional<Frame>> start_next() {
    ofp_request* request = nullptr;
    detail::call([&](ofp_error* error) { return ofp_query_next_start(answer_.get(), &request, error); });
    return {channel_, request, Frame::of_request_if_any};
  }

 private:
  friend class Channel;
  Query(detail::SharedChannel channel, ofp_query* answer) : channel_(std::move(channel)), answer_(answer) {}
  static Query of_request(const detail::SharedChannel& channel, ofp_request* request) {
    ofp_query* answer = nullptr;
    detail::call([&](ofp_error* error) { return ofp_request_query(request, &answer, error); });
    return {channel, answer};
  }
  detail::SharedChannel channel_;
  detail::Owned<ofp_query> answer_;
};

}  // namespace offpath

#endif  // OFFPATH_OBJECTS_HPP
