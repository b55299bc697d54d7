! Offpath for Fortran: the C interface (offpath.h) by iso_c_binding, and the few calls a simulation needs with
! Fortran's own types. Compile it with the program, link with -loffpath.
!
!     type(ofp_session) :: session
!     type(ofp_stream) :: particles
!     call session%connect()                                           ! OFFPATH_AGENT
!     call particles%open(session, "particles", [ofp_column("id", "i"), ofp_column("x", "+w:3g")], rows_max)
!     ticket = particles%send([c_loc(id), c_loc(x)], n, "step0", "rank0")
!     call particles%wait_pulled(ticket)                               ! id and x may change again
!
! x is declared x(3, n): Fortran's columns are C's rows. Arrays need the target attribute. A failure stops the program
! with the library's message; with the argument `stat` the call returns the code instead.
!
! Tasks are in offpath_tasks.f90, gauges and exchanges in offpath_exchange.f90, teams of MPI's communicators in
! offpath_mpi.f90: modules that are compiled after this one.
!
! SPDX-License-Identifier: Apache-2.0

! What the modules of Offpath share. Programs use the module `offpath`.
module offpath_calls
  use, intrinsic :: iso_c_binding
  use, intrinsic :: iso_fortran_env, only: error_unit
  implicit none
  private
  public :: settle, terminated, wait_or_forever, c_ends, c_waits, c_waits_for_ticket, c_makes, c_finds

  integer(c_int), parameter, public :: OFP_OK = 0, OFP_WOULD_BLOCK = 1, OFP_TIMEOUT = 2, OFP_INVALID = 3, &
    OFP_NOT_FOUND = 4, OFP_EXISTS = 5, OFP_SCHEMA = 6, OFP_TOO_LARGE = 7, OFP_STALE = 8, OFP_UNANNOUNCED = 9, &
    OFP_UNREADABLE = 10, OFP_DENIED = 11, OFP_VERSION = 12, OFP_PEER_LOST = 13, OFP_PROTOCOL = 14, OFP_FORKED = 15, &
    OFP_NO_MEMORY = 16, OFP_NO_SPACE = 17, OFP_IO = 18, OFP_UNSUPPORTED = 19, OFP_CLOSED = 20, OFP_CANCELLED = 21, &
    OFP_FUNCTION_FAILED = 22
  integer(c_int64_t), parameter, public :: OFP_FOREVER = -1_c_int64_t

  type, bind(c), public :: ofp_error
    integer(c_int32_t) :: code = 0
    character(kind=c_char) :: message(508) = c_null_char
  end type

  ! Forms that several C calls have.
  abstract interface
    ! Closes, frees or releases what the handle names.
    subroutine c_ends(handle) bind(c)
      import :: c_ptr
      type(c_ptr), value :: handle
    end subroutine
    integer(c_int) function c_waits(handle, wait_ns, error) bind(c)
      import :: c_int, c_int64_t, c_ptr, ofp_error
      type(c_ptr), value :: handle
      integer(c_int64_t), value :: wait_ns
      type(ofp_error), intent(inout) :: error
    end function
    integer(c_int) function c_waits_for_ticket(handle, ticket, wait_ns, error) bind(c)
      import :: c_int, c_int64_t, c_ptr, ofp_error
      type(c_ptr), value :: handle
      integer(c_int64_t), value :: ticket, wait_ns
      type(ofp_error), intent(inout) :: error
    end function
    ! Makes something of a handle and a number: of bytes, or a time to wait.
    integer(c_int) function c_makes(handle, number, made, error) bind(c)
      import :: c_int, c_int64_t, c_ptr, ofp_error
      type(c_ptr), value :: handle
      integer(c_int64_t), value :: number
      type(c_ptr), intent(out) :: made
      type(ofp_error), intent(inout) :: error
    end function
    ! What is at a place, counted from 0; null beyond the last one.
    type(c_ptr) function c_finds(handle, place) bind(c)
      import :: c_int32_t, c_ptr
      type(c_ptr), value :: handle
      integer(c_int32_t), value :: place
    end function
  end interface

contains

  ! Returns the code in `stat`, or stops the program with the message.
  subroutine settle(code, error, stat)
    integer(c_int), intent(in) :: code
    type(ofp_error), intent(in) :: error
    integer, intent(out), optional :: stat
    integer :: i
    if (present(stat)) then
      stat = code
      return
    end if
    if (code == OFP_OK) return
    write (error_unit, "(a)", advance="no") "offpath: "
    do i = 1, size(error%message)
      if (error%message(i) == c_null_char) exit
      write (error_unit, "(a)", advance="no") error%message(i)
    end do
    write (error_unit, *)
    error stop 1
  end subroutine

  function terminated(text) result(c_text)
    character(len=*), intent(in) :: text
    character(kind=c_char, len=:), allocatable :: c_text
    c_text = trim(text) // c_null_char
  end function

  integer(c_int64_t) function wait_or_forever(wait_ns) result(wait)
    integer(c_int64_t), intent(in), optional :: wait_ns
    wait = OFP_FOREVER
    if (present(wait_ns)) wait = wait_ns
  end function

end module offpath_calls

module offpath
  use, intrinsic :: iso_c_binding
  use offpath_calls
  implicit none
  private
  public :: ofp_error, OFP_OK, OFP_WOULD_BLOCK, OFP_TIMEOUT, OFP_INVALID, OFP_NOT_FOUND, OFP_EXISTS, OFP_SCHEMA, &
    OFP_TOO_LARGE, OFP_STALE, OFP_UNANNOUNCED, OFP_UNREADABLE, OFP_DENIED, OFP_VERSION, OFP_PEER_LOST, OFP_PROTOCOL, &
    OFP_FORKED, OFP_NO_MEMORY, OFP_NO_SPACE, OFP_IO, OFP_UNSUPPORTED, OFP_CLOSED, OFP_CANCELLED, OFP_FUNCTION_FAILED, &
    OFP_FOREVER

  integer(c_int32_t), parameter, public :: OFP_SEND_WAIT = 1, OFP_SEND_SNAPSHOT = 2, OFP_SEND_ANNOUNCE = 4
  type, public :: ofp_column
    character(len=64) :: name = ""
    character(len=16) :: format = ""        ! Arrow C data interface: "i", "l", "f", "g", "+w:3g"
    integer(c_int32_t) :: stride_bytes = 0  ! from one row's value to the next; 0: dense
  end type

  type, bind(c) :: c_column
    type(c_ptr) :: name
    type(c_ptr) :: format
    integer(c_int32_t) :: stride_bytes
  end type

  type, bind(c) :: c_stream_options
    integer(c_int32_t) :: struct_bytes
    type(c_ptr) :: pool = c_null_ptr
    type(c_ptr) :: destination = c_null_ptr
    integer(c_int64_t) :: rows_max = 0
    integer(c_int64_t) :: keep = 0
    integer(c_int32_t) :: ranks = 0
    integer(c_int32_t) :: rank = 0
    type(c_ptr) :: compression = c_null_ptr
  end type

  type, public :: ofp_session
    type(c_ptr) :: handle = c_null_ptr
  contains
    procedure :: connect => session_connect
    procedure :: close => session_close
    procedure :: object_bytes => session_object_bytes
  end type

  type, public :: ofp_stream
    type(c_ptr) :: handle = c_null_ptr
  contains
    procedure :: open => stream_open
    procedure :: grow => stream_grow
    procedure :: send => stream_send
    procedure :: step_end => stream_step_end
    procedure :: wait_pulled => stream_wait_pulled
    procedure :: wait_stored => stream_wait_stored
    procedure :: close => stream_close
  end type

  interface
    integer(c_int) function c_connect(address, options, channel, error) bind(c, name="ofp_connect")
      import :: c_int, c_ptr, ofp_error
      type(c_ptr), value :: address, options
      type(c_ptr), intent(out) :: channel
      type(ofp_error), intent(inout) :: error
    end function
    integer(c_int) function c_stream_open_columns(channel, name, columns, columns_count, options, stream, error) &
        bind(c, name="ofp_stream_open_columns")
      import :: c_int, c_int32_t, c_ptr, c_char, c_column, c_stream_options, ofp_error
      type(c_ptr), value :: channel
      character(kind=c_char), intent(in) :: name(*)
      type(c_column), intent(in) :: columns(*)
      integer(c_int32_t), value :: columns_count
      type(c_stream_options), intent(in) :: options
      type(c_ptr), intent(out) :: stream
      type(ofp_error), intent(inout) :: error
    end function
    integer(c_int) function c_stream_grow(stream, rows_max, wait_ns, error) bind(c, name="ofp_stream_grow")
      import :: c_int, c_int64_t, c_ptr, ofp_error
      type(c_ptr), value :: stream
      integer(c_int64_t), value :: rows_max, wait_ns
      type(ofp_error), intent(inout) :: error
    end function
    integer(c_int) function c_send_columns(stream, data, rows, row_key, column_key, flags, ticket, error) &
        bind(c, name="ofp_send_columns")
      import :: c_int, c_int32_t, c_int64_t, c_ptr, c_char, ofp_error
      type(c_ptr), value :: stream
      type(c_ptr), intent(in) :: data(*)
      integer(c_int64_t), value :: rows
      character(kind=c_char), intent(in) :: row_key(*), column_key(*)
      integer(c_int32_t), value :: flags
      integer(c_int64_t), intent(out) :: ticket
      type(ofp_error), intent(inout) :: error
    end function
    integer(c_int) function c_step_end(stream, row_key, ticket, error) bind(c, name="ofp_step_end")
      import :: c_int, c_int64_t, c_ptr, c_char, ofp_error
      type(c_ptr), value :: stream
      character(kind=c_char), intent(in) :: row_key(*)
      integer(c_int64_t), intent(out) :: ticket
      type(ofp_error), intent(inout) :: error
    end function
    integer(c_int) function c_pool_get(channel, pool, row_key, column_key, wait_ns, frame, error) &
        bind(c, name="ofp_pool_get")
      import :: c_int, c_int64_t, c_ptr, c_char, ofp_error
      type(c_ptr), value :: channel
      character(kind=c_char), intent(in) :: pool(*), row_key(*), column_key(*)
      integer(c_int64_t), value :: wait_ns
      type(c_ptr), intent(out) :: frame
      type(ofp_error), intent(inout) :: error
    end function
    integer(c_int64_t) function c_frame_bytes(frame) bind(c, name="ofp_frame_bytes")
      import :: c_int64_t, c_ptr
      type(c_ptr), value :: frame
    end function
    integer(c_int64_t) function c_frame_rows(frame) bind(c, name="ofp_frame_rows")
      import :: c_int64_t, c_ptr
      type(c_ptr), value :: frame
    end function
  end interface
  procedure(c_ends), bind(c, name="ofp_close") :: c_close
  procedure(c_ends), bind(c, name="ofp_frame_release") :: c_frame_release
  procedure(c_waits), bind(c, name="ofp_stream_close") :: c_stream_close
  procedure(c_waits_for_ticket), bind(c, name="ofp_wait_pulled") :: c_wait_pulled
  procedure(c_waits_for_ticket), bind(c, name="ofp_wait_stored") :: c_wait_stored

contains

  ! `address` absent: as NULL in ofp_connect.
  subroutine session_connect(session, address, stat)
    class(ofp_session), intent(inout) :: session
    character(len=*), intent(in), optional :: address
    integer, intent(out), optional :: stat
    character(kind=c_char, len=:), allocatable, target :: text
    type(c_ptr) :: where
    type(ofp_error) :: error
    where = c_null_ptr
    if (present(address)) then
      text = terminated(address)
      where = c_loc(text)
    end if
    call settle(c_connect(where, c_null_ptr, session%handle, error), error, stat)
  end subroutine

  subroutine session_close(session)
    class(ofp_session), intent(inout) :: session
    call c_close(session%handle)
    session%handle = c_null_ptr
  end subroutine

  ! Bytes of an object of a pool, and its rows; waits until it is there, `wait_ns` at most.
  integer(c_int64_t) function session_object_bytes(session, pool, row_key, column_key, wait_ns, rows, stat) &
    result(bytes)
    class(ofp_session), intent(in) :: session
    character(len=*), intent(in) :: pool, row_key, column_key
    integer(c_int64_t), intent(in) :: wait_ns
    integer(c_int64_t), intent(out), optional :: rows
    integer, intent(out), optional :: stat
    type(c_ptr) :: frame
    type(ofp_error) :: error
    integer(c_int) :: code
    bytes = 0
    code = c_pool_get(session%handle, terminated(pool), terminated(row_key), terminated(column_key), wait_ns, frame, &
                      error)
    if (code == OFP_OK) then
      bytes = c_frame_bytes(frame)
      if (present(rows)) rows = c_frame_rows(frame)
      call c_frame_release(frame)
    end if
    call settle(code, error, stat)
  end function

  subroutine stream_open(stream, session, name, columns, rows_max, pool, destination, keep, ranks, rank, stat, &
                         compression)
    class(ofp_stream), intent(inout) :: stream
    type(ofp_session), intent(in) :: session
    character(len=*), intent(in) :: name
    type(ofp_column), intent(in) :: columns(:)
    integer(c_int64_t), intent(in) :: rows_max
    character(len=*), intent(in), optional :: pool, destination, compression  ! "lz4", "zstd"
    integer(c_int64_t), intent(in), optional :: keep
    integer(c_int32_t), intent(in), optional :: ranks, rank
    integer, intent(out), optional :: stat
    character(kind=c_char, len=65), target :: names(size(columns))
    character(kind=c_char, len=17), target :: formats(size(columns))
    character(kind=c_char, len=:), allocatable, target :: pool_text, destination_text, compression_text
    type(c_column) :: list(size(columns))
    type(c_stream_options) :: options
    type(ofp_error) :: error
    integer :: i
    do i = 1, size(columns)
      names(i) = terminated(columns(i)%name)
      formats(i) = terminated(columns(i)%format)
      list(i) = c_column(c_loc(names(i)), c_loc(formats(i)), columns(i)%stride_bytes)
    end do
    options%struct_bytes = int(c_sizeof(options), c_int32_t)
    options%rows_max = rows_max
    if (present(pool)) then
      pool_text = terminated(pool)
      options%pool = c_loc(pool_text)
    end if
    if (present(destination)) then
      destination_text = terminated(destination)
      options%destination = c_loc(destination_text)
    end if
    if (present(compression)) then
      compression_text = terminated(compression)
      options%compression = c_loc(compression_text)
    end if
    if (present(keep)) options%keep = keep
    if (present(ranks)) options%ranks = ranks
    if (present(rank)) options%rank = rank
    call settle(c_stream_open_columns(session%handle, terminated(name), list, size(columns, kind=c_int32_t), options, &
                                      stream%handle, error), error, stat)
  end subroutine

  ! Later batches may have this many rows; fewer than before has no effect. Batches under way are not affected.
  subroutine stream_grow(stream, rows_max, wait_ns, stat)
    class(ofp_stream), intent(in) :: stream
    integer(c_int64_t), intent(in) :: rows_max
    integer(c_int64_t), intent(in), optional :: wait_ns
    integer, intent(out), optional :: stat
    type(ofp_error) :: error
    call settle(c_stream_grow(stream%handle, rows_max, wait_or_forever(wait_ns), error), error, stat)
  end subroutine

  ! `columns`: c_loc of each column's first value. Until the ticket is pulled the arrays must not change.
  integer(c_int64_t) function stream_send(stream, columns, rows, row_key, column_key, flags, stat) result(ticket)
    class(ofp_stream), intent(in) :: stream
    type(c_ptr), intent(in) :: columns(:)
    integer(c_int64_t), intent(in) :: rows
    character(len=*), intent(in) :: row_key, column_key
    integer(c_int32_t), intent(in), optional :: flags
    integer, intent(out), optional :: stat
    type(ofp_error) :: error
    integer(c_int32_t) :: how
    how = ior(OFP_SEND_WAIT, OFP_SEND_ANNOUNCE)
    if (present(flags)) how = flags
    ticket = 0
    call settle(c_send_columns(stream%handle, columns, rows, terminated(row_key), terminated(column_key), how, ticket, &
                               error), error, stat)
  end function

  integer(c_int64_t) function stream_step_end(stream, row_key, stat) result(ticket)
    class(ofp_stream), intent(in) :: stream
    character(len=*), intent(in) :: row_key
    integer, intent(out), optional :: stat
    type(ofp_error) :: error
    ticket = 0
    call settle(c_step_end(stream%handle, terminated(row_key), ticket, error), error, stat)
  end function

  subroutine stream_wait_pulled(stream, ticket, wait_ns, stat)
    class(ofp_stream), intent(in) :: stream
    integer(c_int64_t), intent(in) :: ticket
    integer(c_int64_t), intent(in), optional :: wait_ns
    integer, intent(out), optional :: stat
    type(ofp_error) :: error
    call settle(c_wait_pulled(stream%handle, ticket, wait_or_forever(wait_ns), error), error, stat)
  end subroutine

  subroutine stream_wait_stored(stream, ticket, wait_ns, stat)
    class(ofp_stream), intent(in) :: stream
    integer(c_int64_t), intent(in) :: ticket
    integer(c_int64_t), intent(in), optional :: wait_ns
    integer, intent(out), optional :: stat
    type(ofp_error) :: error
    call settle(c_wait_stored(stream%handle, ticket, wait_or_forever(wait_ns), error), error, stat)
  end subroutine

  subroutine stream_close(stream, stat)
    class(ofp_stream), intent(inout) :: stream
    integer, intent(out), optional :: stat
    type(ofp_error) :: error
    call settle(c_stream_close(stream%handle, 1000000000_c_int64_t, error), error, stat)
    stream%handle = c_null_ptr
  end subroutine

end module offpath
