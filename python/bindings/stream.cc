// Streams. `send` is the hot path: one call takes all columns of a batch from a dict, checks each against the schema
// by its buffer's own description, and posts.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <optional>
#include <vector>

#include "calls.h"

struct ArrowArray;
struct ArrowSchema;

namespace offpath::python {

namespace {

using Text = std::optional<std::string>;
constexpr std::int64_t not_plain = -1;  // the result of `send` for data that the package has to convert

// The form of a column's buffer. `kind` is NumPy's: i u f b, t (temporal: signed integers will do), x (bytes).
struct Column {
  nb::object name;
  char kind = 0;
  Py_ssize_t value_bytes = 0;
  Py_ssize_t values = 1;  // of one row
};

char kind_of(const char* format) {
  if (format == nullptr) return 'u';
  if (std::strchr("@=<", *format) != nullptr && *format != '\0') ++format;
  while (*format >= '0' && *format <= '9') ++format;
  switch (*format) {
    case 'b':
    case 'h':
    case 'i':
    case 'l':
    case 'q':
    case 'n':
      return 'i';
    case 'B':
    case 'H':
    case 'I':
    case 'L':
    case 'Q':
    case 'N':
      return 'u';
    case 'e':
    case 'f':
    case 'd':
      return 'f';
    case '?':
      return 'b';
    case 's':
    case 'x':
    case 'c':
      return 'x';
    default:
      return 0;  // '>' for the other byte order, records, complex numbers
  }
}

bool fits(const Column& column, char kind, Py_ssize_t value_bytes) {
  if (column.kind == 'x')
    return column.value_bytes % (value_bytes > 0 ? value_bytes : 1) == 0 && (kind == 'x' || kind == 'u');
  if (value_bytes != column.value_bytes) return false;
  return kind == column.kind || (column.kind == 't' && kind == 'i');
}

// Rows and stride of one column's buffer; nothing where it does not fit.
struct Shape {
  std::uint64_t rows;
  std::uint32_t stride_bytes;
};

std::optional<Shape> shape_of(const Column& column, const Py_buffer& view) {
  const char kind = kind_of(view.format);
  if (kind == 0 || view.ndim < 1 || !fits(column, kind, view.itemsize)) return {};
  const Py_ssize_t row_bytes = column.values * column.value_bytes;
  // Behind the first dimension values lie side by side and are as many as a row has.
  Py_ssize_t inner_bytes = view.itemsize;
  for (int i = view.ndim - 1; i > 0; --i) {
    if (view.strides[i] != inner_bytes && view.shape[i] > 1) return {};
    inner_bytes *= view.shape[i];
  }
  if (inner_bytes != row_bytes) return {};
  const Py_ssize_t stride = view.strides[0];
  if (view.shape[0] <= 1 || (stride == row_bytes && column.kind != 'b'))
    return Shape{static_cast<std::uint64_t>(view.shape[0]), column.kind == 'b' ? 1u : 0u};
  if (stride < row_bytes || stride > 0x7FFF'FFFF || column.values != 1) return {};
  return Shape{static_cast<std::uint64_t>(view.shape[0]), static_cast<std::uint32_t>(stride)};
}

struct Key {
  const char* row;
  const char* column;
};

const char* text_of(PyObject* object) {
  const char* text = PyUnicode_AsUTF8AndSize(object, nullptr);
  if (text == nullptr) throw nb::python_error();
  return text;
}

Key key_of(PyObject* key) {
  if (PyUnicode_Check(key)) return {text_of(key), ""};
  if (!PyTuple_Check(key) || PyTuple_Size(key) != 2)
    fail(OFP_INVALID, "key: expected a string or a tuple (row, column) of two strings");
  return {text_of(PyTuple_GetItem(key, 0)), text_of(PyTuple_GetItem(key, 1))};
}

class Stream {
 public:
  Stream(nb::handle channel, const std::string& name, nb::handle schema, const nb::object& columns,
         const std::string& destination, std::uint64_t rows_max, const Text& pool, std::uint64_t keep,
         std::uint32_t ranks, std::uint32_t rank, const Text& compression)
      : plain_(!columns.is_none()) {
    if (plain_)
      for (nb::handle each : columns) {
        const auto spec = nb::cast<nb::tuple>(each);
        Column column{nb::borrow(spec[0]), nb::cast<std::string>(spec[1])[0], nb::cast<Py_ssize_t>(spec[2]),
                      nb::cast<Py_ssize_t>(spec[3])};
        columns_.push_back(std::move(column));
      }
    data_.resize(columns_.size());
    strides_.resize(columns_.size());
    ofp_stream_options options{};
    options.struct_bytes = sizeof options;
    options.pool = pool ? pool->c_str() : nullptr;
    options.destination = destination.c_str();
    options.rows_max = rows_max;
    options.keep = keep;
    options.ranks = ranks;
    options.rank = rank;
    options.compression = compression ? compression->c_str() : nullptr;
    const ArrowSchema* arrow = nullptr;
    if (!schema.is_none()) {
      arrow = static_cast<const ArrowSchema*>(PyCapsule_GetPointer(schema.ptr(), "arrow_schema"));
      if (arrow == nullptr) throw nb::python_error();
    }
    const ChannelHandle handle = handle_of(channel);
    ofp_stream* stream = nullptr;
    ofp_error error{};
    int code = 0;
    {
      const nb::gil_scoped_release release;
      code = ofp_stream_open(handle.get(), name.c_str(), arrow, &options, &stream, &error);
    }
    check(code, error);
    stream_ = StreamHandle(stream, [](ofp_stream* gone) { (void)ofp_stream_close(gone, 1'000'000'000, nullptr); });
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream() {
    StreamHandle gone = std::move(stream_);
    const nb::gil_scoped_release release;
    gone.reset();
  }

  void close(double timeout) {
    if (!stream_) return;
    if (stream_.use_count() > 1) fail(OFP_INVALID, "the stream is in use by another thread");
    // Nothing of ours is leased any more once this has succeeded; otherwise the buffers stay until the end.
    const auto wait_ns = static_cast<std::int64_t>(timeout * 1e9);
    ofp_error error{};
    int code = 0;
    {
      const nb::gil_scoped_release release;
      auto* stream = stream_.get();
      code = wait_all(stream, wait_ns, &error);
    }
    StreamHandle gone = std::move(stream_);
    stream_.reset();
    {
      const nb::gil_scoped_release release;
      gone.reset();
    }
    if (code == OFP_OK) held_.clear();
    check(code, error);
  }

  // The ticket, or not_plain if `data` is not a dict or a column is not plain memory of its type: the package then
  // converts it or raises an error.
  std::int64_t send(nb::handle data, nb::handle key, bool snapshot, bool wait, const Seconds& timeout) {
    ofp_stream* stream = handle().get();
    release_pulled();
    if (!plain_ || (!PyDict_Check(data.ptr()) && !whole())) return not_plain;
    std::vector<Exported> views = take_views();
    std::uint64_t rows = 0;
    if (!gather(data.ptr(), views, rows)) return not_plain;
    const Key keys = key_of(key.ptr());
    std::vector<const void*> arrays;  // own ones for a send during which other threads may send
    std::vector<std::uint32_t> strides;
    const auto own = [&] {
      arrays = data_;
      strides = strides_;
    };
    const std::uint64_t ticket =
        post(snapshot, wait, timeout, own, [&](std::uint32_t flags, std::uint64_t* posted, ofp_error* error) {
          const bool owned = !arrays.empty();
          return ofp_send_strided(stream, owned ? arrays.data() : data_.data(),
                                  owned ? strides.data() : strides_.data(), rows, keys.row, keys.column, flags, posted,
                                  error);
        });
    hold(ticket, std::move(views), {});
    return static_cast<std::int64_t>(ticket);
  }

  std::int64_t send_arrow(nb::object capsule, nb::handle key, bool snapshot, bool wait, const Seconds& timeout) {
    ofp_stream* stream = handle().get();
    release_pulled();
    const auto* batch = static_cast<const ArrowArray*>(PyCapsule_GetPointer(capsule.ptr(), "arrow_array"));
    if (batch == nullptr) throw nb::python_error();
    const Key keys = key_of(key.ptr());
    const std::uint64_t ticket = post(
        snapshot, wait, timeout, [] {},
        [&](std::uint32_t flags, std::uint64_t* posted, ofp_error* error) {
          return ofp_send(stream, batch, keys.row, keys.column, flags, posted, error);
        });
    hold(ticket, {}, std::move(capsule));
    return static_cast<std::int64_t>(ticket);
  }

  // `pieces`: (buffer, offset in the object).
  std::int64_t move(nb::handle pieces, std::uint64_t object_bytes, nb::handle key, bool update, bool snapshot,
                    bool wait, const Seconds& timeout) {
    ofp_stream* stream = handle().get();
    release_pulled();
    std::vector<Exported> views;
    std::vector<ofp_piece> list;
    for (nb::handle each : pieces) {
      const auto [buffer, offset] = nb::cast<std::pair<nb::object, std::uint64_t>>(each);
      views.push_back(exported_bytes(buffer.ptr(), PyBUF_SIMPLE));
      const Py_buffer& view = views.back().view();
      list.push_back({view.buf, static_cast<std::uint64_t>(view.len), offset});
    }
    const Key keys = key_of(key.ptr());
    const std::uint64_t ticket = post(
        snapshot, wait, timeout, [] {},
        [&](std::uint32_t flags, std::uint64_t* posted, ofp_error* error) {
          return ofp_move(stream, list.data(), static_cast<std::uint32_t>(list.size()), object_bytes, keys.row,
                          keys.column, update ? OFP_MOVE_UPDATE : OFP_MOVE_CREATE, flags, posted, error);
        });
    hold(ticket, std::move(views), {});
    return static_cast<std::int64_t>(ticket);
  }

  void grow(std::uint64_t rows_max, const Seconds& timeout) {
    const StreamHandle stream = handle();
    wait_for(timeout, [&](std::int64_t wait_ns, ofp_error* error) {
      return ofp_stream_grow(stream.get(), rows_max, wait_ns, error);
    });
  }

  std::uint64_t step_end(const std::string& row) {
    const StreamHandle stream = handle();
    std::uint64_t ticket = 0;
    ofp_error error{};
    int code = 0;
    {
      const nb::gil_scoped_release release;
      code = ofp_step_end(stream.get(), row.c_str(), &ticket, &error);
    }
    check(code, error);
    return ticket;
  }

  void wait_pulled(std::uint64_t ticket, const Seconds& timeout) {
    const StreamHandle stream = handle();
    wait_for(timeout, [&](std::int64_t wait_ns, ofp_error* error) {
      return ofp_wait_pulled(stream.get(), ticket, wait_ns, error);
    });
    release_pulled();
  }
  void wait_stored(std::uint64_t ticket, const Seconds& timeout) {
    const StreamHandle stream = handle();
    wait_for(timeout, [&](std::int64_t wait_ns, ofp_error* error) {
      return ofp_wait_stored(stream.get(), ticket, wait_ns, error);
    });
    release_pulled();
  }
  void arm(std::uint64_t ticket, bool stored) {
    ofp_error error{};
    check(ofp_arm(handle().get(), ticket, stored ? 1 : 0, &error), error);
  }
  [[nodiscard]] std::uint64_t pulled() { return ofp_pulled(handle().get()); }
  [[nodiscard]] std::uint64_t stored() const { return ofp_stored(handle().get()); }
  [[nodiscard]] std::uint64_t credit_bytes() const { return ofp_credit_bytes(handle().get()); }
  [[nodiscard]] std::size_t held() const { return held_.size(); }
  [[nodiscard]] bool closed() const { return stream_ == nullptr; }

 private:
  // The objects that a posted batch keeps alive until it is pulled.
  struct Held {
    std::uint64_t ticket;
    std::vector<Exported> views;
    nb::object capsule;
  };

  [[nodiscard]] StreamHandle handle() const {
    if (!stream_) fail(OFP_CLOSED, "the stream is closed");
    return stream_;
  }
  // One column of bytes, which takes any buffer as a whole.
  [[nodiscard]] bool whole() const { return columns_.size() == 1 && columns_[0].kind == '*'; }

  int wait_all(ofp_stream* stream, std::int64_t wait_ns, ofp_error* error) const {
    if (last_ticket_ == 0) return OFP_OK;
    const int code = ofp_wait_pulled(stream, last_ticket_, wait_ns, error);
    return ofp_pulled(stream) >= last_ticket_ ? OFP_OK : code;  // that the last one failed was reported already
  }

  [[nodiscard]] std::vector<Exported> take_views() {
    if (spare_.empty()) return {};
    std::vector<Exported> views = std::move(spare_.back());
    spare_.pop_back();
    return views;
  }

  // Fills data_, strides_ and `views`. False if a column is missing or no plain memory of its type.
  bool gather(PyObject* data, std::vector<Exported>& views, std::uint64_t& rows) {
    views.reserve(columns_.size());
    if (whole()) {
      PyObject* value = PyDict_Check(data) ? PyDict_GetItemWithError(data, columns_[0].name.ptr()) : data;
      if (value == nullptr || !PyObject_CheckBuffer(value) || has_masked(value)) return false;
      views.emplace_back(value, PyBUF_SIMPLE);
      data_[0] = views.back().view().buf;
      strides_[0] = 0;
      rows = static_cast<std::uint64_t>(views.back().view().len);
      return true;
    }
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      const Column& column = columns_[i];
      PyObject* value = PyDict_GetItemWithError(data, column.name.ptr());
      if (value == nullptr && PyErr_Occurred() != nullptr) throw nb::python_error();
      if (value == nullptr || !PyObject_CheckBuffer(value) || has_masked(value)) return false;
      try {
        views.emplace_back(value, PyBUF_RECORDS_RO);
      } catch (nb::python_error&) {  // datetime64, for one: the package knows another way
        return false;
      }
      const std::optional<Shape> shape = shape_of(column, views.back().view());
      if (!shape || (i > 0 && shape->rows != rows)) return false;
      rows = shape->rows;
      data_[i] = views.back().view().buf;
      strides_[i] = shape->stride_bytes;
    }
    return static_cast<std::size_t>(PyDict_Size(data)) == columns_.size();
  }

  // Posts without waiting, which needs no release of the GIL; copies and waits outside of it, after `own` has made
  // `call` independent of changes by other threads.
  template <class Own, class Post>
  std::uint64_t post(bool snapshot, bool wait, const Seconds& timeout, const Own& own, const Post& call) {
    const std::uint32_t flags = snapshot ? OFP_SEND_ANNOUNCE | OFP_SEND_SNAPSHOT : OFP_SEND_ANNOUNCE;
    std::uint64_t ticket = 0;
    ofp_error error{};
    int code = OFP_WOULD_BLOCK;
    if (!snapshot) code = call(flags, &ticket, &error);
    if (snapshot || (code == OFP_WOULD_BLOCK && wait)) {
      const StreamHandle used = stream_;
      own();
      code = call_waiting(error, [&, wait_ns = wait_ns_of(timeout)](ofp_error* told) {
        ofp_send_wait(wait_ns);
        return call(wait ? flags | OFP_SEND_WAIT : flags, &ticket, told);
      });
    }
    check(code, error);
    return ticket;
  }

  void hold(std::uint64_t ticket, std::vector<Exported> views, nb::object capsule) {
    last_ticket_ = ticket;
    held_.push_back({ticket, std::move(views), std::move(capsule)});
    release_pulled();  // a copied batch needs nothing any more
  }
  void release_pulled() {
    if (held_.empty() || !stream_) return;
    const std::uint64_t reached = ofp_pulled(stream_.get());
    while (!held_.empty() && held_.front().ticket <= reached) {
      Held gone = std::move(held_.front());  // releasing may run any code
      held_.pop_front();
      gone.views.clear();
      if (spare_.size() < 16) spare_.push_back(std::move(gone.views));
    }
  }

  StreamHandle stream_;
  bool plain_;
  std::vector<Column> columns_;
  std::vector<const void*> data_;
  std::vector<std::uint32_t> strides_;
  std::deque<Held> held_;
  std::vector<std::vector<Exported>> spare_;
  std::uint64_t last_ticket_ = 0;
};

}  // namespace

void bind_stream(nb::module_& module) {
  nb::class_<Stream>(module, "Stream")
      .def(nb::init<nb::handle, const std::string&, nb::handle, const nb::object&, const std::string&, std::uint64_t,
                    const Text&, std::uint64_t, std::uint32_t, std::uint32_t, const Text&>(),
           nb::arg("channel"), nb::arg("name"), nb::arg("schema").none(), nb::arg("columns").none(),
           nb::arg("destination"), nb::arg("rows_max"), nb::arg("pool").none(), nb::arg("keep"), nb::arg("ranks"),
           nb::arg("rank"), nb::arg("compression").none())
      .def("close", &Stream::close, nb::arg("timeout"))
      .def("send", &Stream::send, nb::arg("data"), nb::arg("key"), nb::arg("snapshot"), nb::arg("wait"),
           nb::arg("timeout").none())
      .def("send_arrow", &Stream::send_arrow, nb::arg("capsule"), nb::arg("key"), nb::arg("snapshot"), nb::arg("wait"),
           nb::arg("timeout").none())
      .def("move", &Stream::move, nb::arg("pieces"), nb::arg("object_bytes"), nb::arg("key"), nb::arg("update"),
           nb::arg("snapshot"), nb::arg("wait"), nb::arg("timeout").none())
      .def("step_end", &Stream::step_end)
      .def("grow", &Stream::grow, nb::arg("rows_max"), nb::arg("timeout").none())
      .def("wait_pulled", &Stream::wait_pulled, nb::arg("ticket"), nb::arg("timeout").none())
      .def("wait_stored", &Stream::wait_stored, nb::arg("ticket"), nb::arg("timeout").none())
      .def("arm", &Stream::arm)
      .def_prop_ro("pulled", &Stream::pulled)
      .def_prop_ro("stored", &Stream::stored)
      .def_prop_ro("credit_bytes", &Stream::credit_bytes)
      .def_prop_ro("held", &Stream::held)
      .def_prop_ro("closed", &Stream::closed);
}

}  // namespace offpath::python
