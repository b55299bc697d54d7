// Channels, memory, and reading back.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>

#include "calls.h"

namespace offpath::python {
namespace {

using Text = std::optional<std::string>;

const char* pointer_of(const Text& text) { return text ? text->c_str() : nullptr; }

int fill_view(PyObject* self, Py_buffer* view, const void* data, std::uint64_t bytes, bool read_only, int flags) {
  static char nothing = 0;
  void* at = data != nullptr ? const_cast<void*>(data) : &nothing;
  return PyBuffer_FillInfo(view, self, at, static_cast<Py_ssize_t>(bytes), read_only ? 1 : 0, flags);
}

// An object read from the agent, as a buffer. Views of it keep it alive, and it its lease.
class Frame {
 public:
  explicit Frame(ofp_frame* frame) : frame_(frame, ofp_frame_release) {}
  [[nodiscard]] const ofp_frame* get() const { return frame_.get(); }

 private:
  std::unique_ptr<ofp_frame, void (*)(ofp_frame*)> frame_;
};

class Segment {
 public:
  Segment(ofp_channel* channel, std::uint64_t bytes) {
    ofp_segment* segment = nullptr;
    ofp_error error{};
    int code = 0;
    {
      const nb::gil_scoped_release release;
      code = ofp_alloc(channel, bytes, &segment, &error);
    }
    check(code, error);
    segment_.reset(segment);
  }
  [[nodiscard]] ofp_segment* get() const { return segment_.get(); }

 private:
  std::unique_ptr<ofp_segment, void (*)(ofp_segment*)> segment_{nullptr, ofp_free};
};

// Tuples of the entries, and the view.
nb::tuple listing_of(ofp_listing* listing) {
  const std::unique_ptr<ofp_listing, void (*)(ofp_listing*)> owned(listing, ofp_listing_free);
  nb::list entries;
  for (std::uint64_t i = 0; i < ofp_listing_count(listing); ++i) {
    ofp_entry entry{};
    ofp_listing_entry(listing, i, &entry);
    const nb::object rows = entry.is_arrow != 0 ? nb::object(nb::int_(entry.rows)) : nb::none();
    entries.append(nb::make_tuple(entry.row_key, entry.column_key, entry.bytes, rows, entry.sequence,
                                  ofp_listing_member(listing, i)));
  }
  return nb::make_tuple(entries, ofp_listing_view(listing));
}

nb::tuple resources_of(ofp_resources* resources) {
  const std::unique_ptr<ofp_resources, void (*)(ofp_resources*)> owned(resources, ofp_resources_free);
  nb::list all;
  for (std::uint64_t i = 0; i < ofp_resources_count(resources); ++i) {
    ofp_resource resource{};
    ofp_resources_entry(resources, i, &resource);
    all.append(nb::make_tuple(resource.path, resource.about, resource.member));
  }
  return nb::make_tuple(all, ofp_resources_version(resources));
}

// Keys of ended requests, and the descriptor of their reader. It outlives the channel's callbacks, because each comes
// in a call of an object that holds it.
class Ended {
 public:
  Ended() : fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (fd_ < 0) fail(OFP_IO, std::string("eventfd: ") + std::strerror(errno));
  }
  Ended(const Ended&) = delete;
  ~Ended() { ::close(fd_); }
  // Keys are used once: the address of a freed request is soon reused.
  [[nodiscard]] std::uint64_t new_key() {
    const std::lock_guard lock(mutex_);
    return ++newest_;
  }
  void expect(ofp_request* request, std::uint64_t key) {
    const std::lock_guard lock(mutex_);
    expected_[request] = key;
  }
  void forget(ofp_request* request) {
    const std::lock_guard lock(mutex_);
    expected_.erase(request);
  }
  static void add(void* user, ofp_request* request) {
    auto* const ended = static_cast<Ended*>(user);
    {
      const std::lock_guard lock(ended->mutex_);
      const auto expected = ended->expected_.extract(request);
      if (!expected) return;
      ended->keys_.push_back(expected.mapped());
    }
    ended->nudge();
  }
  void nudge() const { (void)eventfd_write(fd_, 1); }
  [[nodiscard]] std::vector<std::uint64_t> take() {
    eventfd_t count = 0;
    (void)eventfd_read(fd_, &count);
    const std::lock_guard lock(mutex_);
    return std::exchange(keys_, {});
  }
  [[nodiscard]] int fd() const { return fd_; }

 private:
  int fd_;
  std::mutex mutex_;
  std::uint64_t newest_ = 0;
  std::unordered_map<ofp_request*, std::uint64_t> expected_;
  std::vector<std::uint64_t> keys_;
};
using EndedPtr = std::shared_ptr<Ended>;

class Query;

// A request. Its key identifies it; its result is available when it has ended.
class Request {
 public:
  // `post(request, error)` is called without the GIL.
  template <class Post>
  static Request start(EndedPtr ended, const Post& post) {
    ofp_request* request = nullptr;
    ofp_error error{};
    int code = 0;
    {
      const nb::gil_scoped_release release;
      code = post(&request, &error);
    }
    check(code, error);
    return Request(request, std::move(ended));
  }
  // Started, and waited for as long as it takes: it has a time of its own.
  template <class Post>
  static Request finished(EndedPtr ended, const Post& post) {
    Request request = start(std::move(ended), post);
    (void)request.wait(nb::none());
    return request;
  }
  // False: it goes on.
  bool wait(const Seconds& timeout) const {
    return ended_in_time(timeout, OFP_WOULD_BLOCK, [&](std::int64_t wait_ns, ofp_error* error) {
      return ofp_request_wait(request_.get(), wait_ns, error);
    });
  }
  // Its key is among Channel.take_ended then.
  void tell_end() const {
    ofp_error error{};
    int code = 0;
    {
      const nb::gil_scoped_release release;
      ended_->expect(request_.get(), key_);
      code = ofp_request_on_end(request_.get(), Ended::add, ended_.get(), &error);
    }
    check(code, error);
  }
  [[nodiscard]] std::uint64_t key() const { return key_; }
  [[nodiscard]] std::optional<Frame> frame() const {
    ofp_frame* frame = nullptr;
    ofp_error error{};
    check(ofp_request_frame(request_.get(), &frame, &error), error);
    if (frame == nullptr) return {};
    return Frame(frame);
  }
  [[nodiscard]] nb::tuple listing() const {
    ofp_listing* listing = nullptr;
    ofp_error error{};
    check(ofp_request_listing(request_.get(), &listing, &error), error);
    return listing_of(listing);
  }
  [[nodiscard]] nb::tuple resources() const {
    ofp_resources* resources = nullptr;
    ofp_error error{};
    check(ofp_request_resources(request_.get(), &resources, &error), error);
    return resources_of(resources);
  }
  [[nodiscard]] std::uint64_t dropped() const {
    std::uint64_t dropped = 0;
    ofp_error error{};
    check(ofp_request_dropped(request_.get(), &dropped, &error), error);
    return dropped;
  }
  [[nodiscard]] Query query() const;
  void free() {
    const nb::gil_scoped_release release;
    release_request();
  }
  Request(Request&&) = default;
  ~Request() { release_request(); }

 private:
  void release_request() {
    if (request_ == nullptr) return;
    ended_->forget(request_.get());
    request_.reset();
  }
  Request(ofp_request* request, EndedPtr ended)
      : ended_(std::move(ended)), key_(ended_->new_key()), request_(request, ofp_request_free) {}
  EndedPtr ended_;
  std::uint64_t key_;
  std::unique_ptr<ofp_request, void (*)(ofp_request*)> request_;
};

class Query {
 public:
  Query(ofp_query* query, EndedPtr ended) : ended_(std::move(ended)), query_(query, ofp_query_free) {}
  [[nodiscard]] auto asks() const {
    return [query = query_.get()](ofp_request** request, ofp_error* error) {
      return ofp_query_next_start(query, request, error);
    };
  }
  [[nodiscard]] std::optional<Frame> next() const { return Request::finished(ended_, asks()).frame(); }
  [[nodiscard]] Request start_next() const { return Request::start(ended_, asks()); }

 private:
  EndedPtr ended_;
  std::unique_ptr<ofp_query, void (*)(ofp_query*)> query_;
};

Query Request::query() const {
  ofp_query* answer = nullptr;
  ofp_error error{};
  check(ofp_request_query(request_.get(), &answer, &error), error);
  return Query(answer, ended_);
}

// Memory announced for as long as this lives; the array is kept alive too.
class Range {
 public:
  Range(ofp_channel* channel, nb::handle array) : exported_(array.ptr(), PyBUF_SIMPLE) {
    ofp_error error{};
    check(ofp_range_announce(channel, exported_.view().buf, static_cast<std::uint64_t>(exported_.view().len), &range_,
                             &error),
          error);
  }
  Range(const Range&) = delete;
  ~Range() {
    if (range_ == nullptr) return;
    const nb::gil_scoped_release release;
    (void)ofp_range_retire(range_, 1'000'000'000, nullptr);
  }
  void reannounce(nb::handle array) {
    Exported next(array.ptr(), PyBUF_SIMPLE);
    ofp_error error{};
    check(ofp_range_reannounce(range(), next.view().buf, static_cast<std::uint64_t>(next.view().len), &error), error);
    exported_ = std::move(next);
  }
  void retire(const Seconds& timeout) {
    const std::int64_t wait_ns = wait_ns_of(timeout);
    ofp_range* range = std::exchange(range_, nullptr);
    const Exported gone = std::move(exported_);  // withdrawn in any case, also when a signal ends the wait
    if (range == nullptr) return;
    ofp_error error{};
    check(call_waiting(error, [&](ofp_error* told) { return ofp_range_retire(range, wait_ns, told); }), error);
  }
  [[nodiscard]] Py_ssize_t bytes() const { return exported_.view().len; }

 private:
  [[nodiscard]] ofp_range* range() const {
    if (range_ == nullptr) fail(OFP_CLOSED, "the announcement was withdrawn");
    return range_;
  }
  Exported exported_;
  ofp_range* range_ = nullptr;
};

class Channel {
 public:
  Channel(const Text& address, const Text& name, const Text& key_file, const Text& tls_ca_file, double timeout,
          std::uint32_t ring_slots, std::uint64_t staging_bytes_max, bool force_staging) {
    ofp_connect_options options{};
    options.struct_bytes = sizeof options;
    options.name = pointer_of(name);
    options.key_file = pointer_of(key_file);
    options.tls_ca_file = pointer_of(tls_ca_file);
    options.wait_ns = static_cast<std::int64_t>(timeout * 1e9);
    options.request_ring_slots = ring_slots;
    options.staging_bytes_max = staging_bytes_max;
    options.force_staging = force_staging ? 1 : 0;
    ofp_channel* channel = nullptr;
    ofp_error error{};
    int code = 0;
    {
      const nb::gil_scoped_release release;
      code = ofp_connect(pointer_of(address), &options, &channel, &error);
    }
    check(code, error);
    handle_ = ChannelHandle(channel, [ended = ended_](ofp_channel* gone) { ofp_close(gone); });
  }
  ~Channel() { close(); }

  void close() {
    ChannelHandle gone = std::move(handle_);
    handle_.reset();
    const nb::gil_scoped_release release;
    gone.reset();
  }
  [[nodiscard]] bool closed() const { return handle_ == nullptr; }
  [[nodiscard]] ChannelHandle handle() const {
    if (!handle_) fail(OFP_CLOSED, "the session is closed");
    return handle_;
  }

  [[nodiscard]] nb::dict info() const {
    ofp_channel_info info{};
    info.struct_bytes = sizeof info;
    ofp_error error{};
    check(ofp_channel_info_get(handle().get(), &info, &error), error);
    nb::dict all;
    all["one_sided"] = info.one_sided != 0;
    all["staged"] = info.staged != 0;
    all["threads"] = info.threads;
    all["link"] = info.link;
    all["link_reason"] = info.link_reason;
    all["agent_name"] = info.agent_name;
    all["agent_version"] = info.agent_version;
    all["agent_incarnation"] = info.agent_incarnation;
    all["agent_pid"] = info.agent_pid;
    all["memory_bytes_max"] = info.memory_bytes_max;
    all["posted"] = info.posted;
    all["bytes_posted"] = info.bytes_posted;
    all["pulled"] = info.pulled;
    all["failed"] = info.failed;
    all["wakes_sent"] = info.wakes_sent;
    all["sleeps"] = info.sleeps;
    return all;
  }
  [[nodiscard]] int event_fd() const { return ofp_event_fd(handle().get()); }
  void poll() const {
    ofp_error error{};
    check(ofp_poll(handle().get(), &error), error);
  }
  [[nodiscard]] int ended_fd() const { return ended_->fd(); }
  [[nodiscard]] nb::list take_ended() const {
    nb::list keys;
    for (const std::uint64_t key : ended_->take()) keys.append(key);
    return keys;
  }
  void nudge() const { ended_->nudge(); }
  [[nodiscard]] nb::tuple probe(const Seconds& timeout) const {
    const ChannelHandle channel = handle();
    std::int64_t seen_ns = 0, returned_ns = 0;
    wait_for(timeout, [&](std::int64_t wait_ns, ofp_error* error) {
      return ofp_probe(channel.get(), wait_ns, &seen_ns, &returned_ns, error);
    });
    return nb::make_tuple(seen_ns, returned_ns);
  }

  [[nodiscard]] nb::list members(const Seconds& timeout) const {
    const ChannelHandle channel = handle();
    ofp_members* members = nullptr;
    wait_for(timeout, [&](std::int64_t wait_ns, ofp_error* error) {
      return ofp_group_members(channel.get(), wait_ns, &members, error);
    });
    const std::unique_ptr<ofp_members, void (*)(ofp_members*)> owned(members, ofp_members_free);
    nb::list all;
    for (std::uint64_t i = 0; i < ofp_members_count(members); ++i) {
      ofp_member member{};
      ofp_members_entry(members, i, &member);
      all.append(nb::make_tuple(member.name, member.host, member.address, member.http, member.flight, member.state,
                                ofp_members_role(members, i), ofp_members_rack(members, i)));
    }
    return all;
  }

  [[nodiscard]] Request start_resources(const std::string& member, const std::string& path, std::uint64_t seen,
                                        const Seconds& timeout) const {
    const ChannelHandle channel = handle();
    const std::int64_t wait_ns = wait_ns_of(timeout);
    return Request::start(ended_, [&](ofp_request** request, ofp_error* error) {
      return ofp_resources_start(channel.get(), member.c_str(), path.c_str(), seen, wait_ns, request, error);
    });
  }

  [[nodiscard]] Range* announce(nb::handle array) const { return new Range(handle().get(), array); }

  // Posts each of pools' requests: `Request::start` for callers that continue, `Request::finished` for callers that
  // wait.
  [[nodiscard]] auto get(const std::string& pool, const std::string& row, const std::string& column,
                         const Seconds& timeout) const {
    return [&, channel = handle(), wait_ns = wait_ns_of(timeout)](ofp_request** request, ofp_error* error) {
      return ofp_pool_want(channel.get(), pool.c_str(), row.c_str(), column.c_str(), wait_ns, request, error);
    };
  }
  [[nodiscard]] auto list(const std::string& pool, const Text& row_glob, const Text& column_glob,
                          const Seconds& timeout) const {
    return [&, channel = handle(), wait_ns = wait_ns_of(timeout)](ofp_request** request, ofp_error* error) {
      return ofp_pool_list_start(channel.get(), pool.c_str(), pointer_of(row_glob), pointer_of(column_glob), wait_ns,
                                 request, error);
    };
  }
  [[nodiscard]] auto drop(const std::string& pool, const Text& row_glob, const Text& column_glob,
                          const Seconds& timeout) const {
    return [&, channel = handle(), wait_ns = wait_ns_of(timeout)](ofp_request** request, ofp_error* error) {
      return ofp_pool_drop_start(channel.get(), pool.c_str(), pointer_of(row_glob), pointer_of(column_glob), wait_ns,
                                 request, error);
    };
  }
  [[nodiscard]] auto query(const std::string& pool, const Text& row_glob, const Text& column_glob,
                           const nb::bytes& query, const Seconds& timeout) const {
    return [&, channel = handle(), wait_ns = wait_ns_of(timeout), bytes = query.c_str(), length = query.size()](
               ofp_request** request, ofp_error* error) {
      return ofp_pool_query_start(channel.get(), pool.c_str(), pointer_of(row_glob), pointer_of(column_glob), bytes,
                                  length, wait_ns, request, error);
    };
  }
  [[nodiscard]] auto compute(const std::string& pool, const std::string& row, const std::string& column,
                             const std::string& plugin, const std::string& function, const nb::bytes& arguments,
                             const Text& result_row, const Text& result_column, const Seconds& timeout) const {
    return [&, channel = handle(), wait_ns = wait_ns_of(timeout), bytes = arguments.c_str(), length = arguments.size()](
               ofp_request** request, ofp_error* error) {
      return ofp_pool_compute_start(channel.get(), pool.c_str(), row.c_str(), column.c_str(), plugin.c_str(),
                                    function.c_str(), bytes, length, pointer_of(result_row), pointer_of(result_column),
                                    wait_ns, request, error);
    };
  }
  template <class Post>
  [[nodiscard]] Request start(const Post& post) const {
    return Request::start(ended_, post);
  }
  template <class Post>
  [[nodiscard]] Request finished(const Post& post) const {
    return Request::finished(ended_, post);
  }

  [[nodiscard]] std::uint32_t sift_elements(const std::string& pool, const Seconds& timeout) const {
    std::uint32_t elements = 0;
    wait_for(timeout, [&, channel = handle()](std::int64_t wait_ns, ofp_error* error) {
      return ofp_sift_elements(channel.get(), pool.c_str(), wait_ns, &elements, error);
    });
    return elements;
  }
  void sift_flush(const std::string& pool, const Seconds& timeout) const {
    const ChannelHandle channel = handle();
    wait_for(timeout, [&](std::int64_t wait_ns, ofp_error* error) {
      return ofp_sift_flush(channel.get(), pool.c_str(), wait_ns, error);
    });
  }
  [[nodiscard]] Frame sift_tracks(const std::string& pool, std::uint32_t element,
                                  const std::optional<std::vector<std::uint64_t>>& identifiers, std::int64_t first_step,
                                  std::int64_t last_step, const Seconds& timeout) const {
    static constexpr std::uint64_t none = 0;
    const std::uint64_t* first = identifiers ? (identifiers->empty() ? &none : identifiers->data()) : nullptr;
    ofp_frame* frame = nullptr;
    wait_for(timeout, [&, channel = handle()](std::int64_t wait_ns, ofp_error* error) {
      return ofp_sift_tracks(channel.get(), pool.c_str(), element, first,
                             identifiers ? static_cast<std::uint32_t>(identifiers->size()) : 0, first_step, last_step,
                             wait_ns, &frame, error);
    });
    return Frame(frame);
  }
  [[nodiscard]] std::uint64_t sift_write(const std::string& pool, const std::string& directory,
                                         const Seconds& timeout) const {
    std::uint64_t number = 0;
    wait_for(timeout, [&, channel = handle()](std::int64_t wait_ns, ofp_error* error) {
      return ofp_sift_write(channel.get(), pool.c_str(), directory.c_str(), wait_ns, &number, error);
    });
    return number;
  }
  [[nodiscard]] nb::tuple sift_written(std::uint64_t number, const Seconds& timeout) const {
    ofp_sift_progress progress{};
    wait_for(timeout, [&, channel = handle()](std::int64_t wait_ns, ofp_error* error) {
      return ofp_sift_written(channel.get(), number, wait_ns, &progress, error);
    });
    return nb::make_tuple(progress.over != 0, progress.members, progress.members_over, progress.files, progress.rows,
                          progress.bytes);
  }
  void sift_write_cancel(std::uint64_t number) const {
    wait_for(nb::none(), [&, channel = handle()](std::int64_t, ofp_error* error) {
      return ofp_sift_write_cancel(channel.get(), number, error);
    });
  }
  [[nodiscard]] std::uint64_t pool_write(const std::string& pool, int fd, const Seconds& timeout) const {
    std::uint64_t written = 0;
    wait_for(timeout, [&, channel = handle()](std::int64_t wait_ns, ofp_error* error) {
      return ofp_pool_write(channel.get(), pool.c_str(), fd, wait_ns, &written, error);
    });
    return written;
  }

 private:
  EndedPtr ended_ = std::make_shared<Ended>();
  ChannelHandle handle_;
};

int frame_buffer(PyObject* self, Py_buffer* view, int flags) {
  const ofp_frame* frame = nb::inst_ptr<Frame>(self)->get();
  return fill_view(self, view, ofp_frame_data(frame), ofp_frame_bytes(frame), true, flags);
}

int segment_buffer(PyObject* self, Py_buffer* view, int flags) {
  ofp_segment* segment = nb::inst_ptr<Segment>(self)->get();
  return fill_view(self, view, ofp_segment_data(segment), ofp_segment_bytes(segment), false, flags);
}

PyType_Slot frame_slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(frame_buffer)}, {0, nullptr}};
PyType_Slot segment_slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(segment_buffer)}, {0, nullptr}};

}  // namespace

ChannelHandle handle_of(nb::handle channel) { return nb::cast<Channel&>(channel).handle(); }

static void bind_pools(nb::class_<Channel>& channel) {
  channel
      .def(
          "pool_get",
          [](const Channel& channel, const std::string& pool, const std::string& row, const std::string& column,
             const Seconds& timeout) {
            return channel.finished(channel.get(pool, row, column, timeout)).frame().value();
          },
          nb::arg("pool"), nb::arg("row"), nb::arg("column"), nb::arg("timeout").none())
      .def(
          "pool_want",
          [](const Channel& channel, const std::string& pool, const std::string& row, const std::string& column,
             const Seconds& timeout) { return channel.start(channel.get(pool, row, column, timeout)); },
          nb::arg("pool"), nb::arg("row"), nb::arg("column"), nb::arg("timeout").none())
      .def(
          "pool_list",
          [](const Channel& channel, const std::string& pool, const Text& rows, const Text& columns,
             const Seconds& timeout) { return channel.finished(channel.list(pool, rows, columns, timeout)).listing(); },
          nb::arg("pool"), nb::arg("row_glob").none(), nb::arg("column_glob").none(), nb::arg("timeout").none())
      .def(
          "start_list",
          [](const Channel& channel, const std::string& pool, const Text& rows, const Text& columns,
             const Seconds& timeout) { return channel.start(channel.list(pool, rows, columns, timeout)); },
          nb::arg("pool"), nb::arg("row_glob").none(), nb::arg("column_glob").none(), nb::arg("timeout").none())
      .def(
          "pool_drop",
          [](const Channel& channel, const std::string& pool, const Text& rows, const Text& columns,
             const Seconds& timeout) { return channel.finished(channel.drop(pool, rows, columns, timeout)).dropped(); },
          nb::arg("pool"), nb::arg("row_glob").none(), nb::arg("column_glob").none(), nb::arg("timeout").none())
      .def(
          "start_drop",
          [](const Channel& channel, const std::string& pool, const Text& rows, const Text& columns,
             const Seconds& timeout) { return channel.start(channel.drop(pool, rows, columns, timeout)); },
          nb::arg("pool"), nb::arg("row_glob").none(), nb::arg("column_glob").none(), nb::arg("timeout").none())
      .def(
          "pool_query",
          [](const Channel& channel, const std::string& pool, const Text& rows, const Text& columns,
             const nb::bytes& query, const Seconds& timeout) {
            return channel.finished(channel.query(pool, rows, columns, query, timeout)).query();
          },
          nb::arg("pool"), nb::arg("row_glob").none(), nb::arg("column_glob").none(), nb::arg("query"),
          nb::arg("timeout").none())
      .def(
          "start_query",
          [](const Channel& channel, const std::string& pool, const Text& rows, const Text& columns,
             const nb::bytes& query,
             const Seconds& timeout) { return channel.start(channel.query(pool, rows, columns, query, timeout)); },
          nb::arg("pool"), nb::arg("row_glob").none(), nb::arg("column_glob").none(), nb::arg("query"),
          nb::arg("timeout").none())
      .def(
          "pool_compute",
          [](const Channel& channel, const std::string& pool, const std::string& row, const std::string& column,
             const std::string& plugin, const std::string& function, const nb::bytes& arguments, const Text& result_row,
             const Text& result_column, const Seconds& timeout) {
            return channel
                .finished(
                    channel.compute(pool, row, column, plugin, function, arguments, result_row, result_column, timeout))
                .frame();
          },
          nb::arg("pool"), nb::arg("row"), nb::arg("column"), nb::arg("plugin"), nb::arg("function"),
          nb::arg("arguments"), nb::arg("result_row").none(), nb::arg("result_column").none(),
          nb::arg("timeout").none(),
          nb::sig(
              "def pool_compute(self, pool: str, row: str, column: str, plugin: str, function: str, arguments: bytes, "
              "result_row: str | None, result_column: str | None, timeout: float | None) -> Frame | None"))
      .def(
          "start_compute",
          [](const Channel& channel, const std::string& pool, const std::string& row, const std::string& column,
             const std::string& plugin, const std::string& function, const nb::bytes& arguments, const Text& result_row,
             const Text& result_column, const Seconds& timeout) {
            return channel.start(
                channel.compute(pool, row, column, plugin, function, arguments, result_row, result_column, timeout));
          },
          nb::arg("pool"), nb::arg("row"), nb::arg("column"), nb::arg("plugin"), nb::arg("function"),
          nb::arg("arguments"), nb::arg("result_row").none(), nb::arg("result_column").none(),
          nb::arg("timeout").none())
      .def("sift_elements", &Channel::sift_elements, nb::arg("pool"), nb::arg("timeout").none())
      .def("sift_flush", &Channel::sift_flush, nb::arg("pool"), nb::arg("timeout").none())
      .def("sift_tracks", &Channel::sift_tracks, nb::arg("pool"), nb::arg("element"), nb::arg("identifiers").none(),
           nb::arg("first_step"), nb::arg("last_step"), nb::arg("timeout").none())
      .def("sift_write", &Channel::sift_write, nb::arg("pool"), nb::arg("directory"), nb::arg("timeout").none())
      .def("sift_written", &Channel::sift_written, nb::arg("number"), nb::arg("timeout").none(),
           nb::sig(
               "def sift_written(self, number: int, timeout: object | None) -> tuple[bool, int, int, int, int, int]"))
      .def("sift_write_cancel", &Channel::sift_write_cancel, nb::arg("number"))
      .def("pool_write", &Channel::pool_write, nb::arg("pool"), nb::arg("fd"), nb::arg("timeout").none());
}

void bind_channel(nb::module_& module) {
  nb::class_<Frame>(module, "Frame", nb::type_slots(frame_slots))
      .def_prop_ro("nbytes", [](const Frame& frame) { return ofp_frame_bytes(frame.get()); })
      .def_prop_ro("rows", [](const Frame& frame) { return ofp_frame_rows(frame.get()); })
      .def_prop_ro("is_arrow", [](const Frame& frame) { return ofp_frame_is_arrow(frame.get()) != 0; })
      .def_prop_ro("mapped", [](const Frame& frame) { return ofp_frame_mapped(frame.get()) != 0; })
      .def_prop_ro("address",
                   [](const Frame& frame) { return reinterpret_cast<std::uintptr_t>(ofp_frame_data(frame.get())); });
  nb::class_<Request>(module, "Request")
      .def_prop_ro("key", &Request::key)
      .def("wait", &Request::wait, nb::arg("timeout").none())
      .def("tell_end", &Request::tell_end)
      .def("frame", &Request::frame, nb::sig("def frame(self) -> Frame | None"))
      .def("listing", &Request::listing)
      .def("resources", &Request::resources)
      .def("dropped", &Request::dropped)
      .def("query", &Request::query, nb::sig("def query(self) -> Query"))
      .def("free", &Request::free);
  nb::class_<Query>(module, "Query")
      .def("next", &Query::next, nb::sig("def next(self) -> Frame | None"))
      .def("start_next", &Query::start_next);
  nb::class_<Segment>(module, "Segment", nb::type_slots(segment_slots))
      .def(
          "__init__",
          [](Segment* made, const nb::handle channel, std::uint64_t bytes) {
            const ChannelHandle held = handle_of(channel);
            new (made) Segment(held.get(), bytes);
          },
          nb::arg("channel"), nb::arg("nbytes"))
      .def_prop_ro(
          "nbytes", [](const Segment& segment) { return ofp_segment_bytes(segment.get()); }, "Its size in bytes.");
  nb::class_<Range>(module, "Range")
      .def("reannounce", &Range::reannounce, nb::arg("array"))
      .def("retire", &Range::retire, nb::arg("timeout").none())
      .def_prop_ro("nbytes", &Range::bytes);
  nb::class_<Channel> channel(module, "Channel");
  channel
      .def(nb::init<const Text&, const Text&, const Text&, const Text&, double, std::uint32_t, std::uint64_t, bool>(),
           nb::arg("address").none(), nb::arg("name").none(), nb::arg("key_file").none(), nb::arg("tls_ca_file").none(),
           nb::arg("timeout"), nb::arg("ring_slots"), nb::arg("staging_bytes_max"), nb::arg("force_staging"))
      .def("close", &Channel::close)
      .def_prop_ro("closed", &Channel::closed)
      .def("info", &Channel::info)
      .def_prop_ro("event_fd", &Channel::event_fd)
      .def("poll", &Channel::poll)
      .def_prop_ro("ended_fd", &Channel::ended_fd)
      .def("take_ended", &Channel::take_ended)
      .def("nudge", &Channel::nudge)
      .def("probe", &Channel::probe, nb::arg("timeout").none())
      .def("members", &Channel::members, nb::arg("timeout").none())
      .def("start_resources", &Channel::start_resources, nb::arg("member"), nb::arg("path"), nb::arg("seen"),
           nb::arg("timeout").none())
      .def("announce", &Channel::announce, nb::arg("array"), nb::rv_policy::take_ownership);
  bind_pools(channel);
}

}  // namespace offpath::python
