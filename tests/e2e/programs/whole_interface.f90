! A stream that grows, tasks, gauges and an exchange from Fortran. Prints what is as it should be; goes on between them
! when its standard input has a line.
program whole_interface
  use, intrinsic :: iso_c_binding
  use offpath
  use offpath_exchange
  use offpath_tasks
  implicit none
  integer(c_int64_t), parameter :: patience_ns = 20000000000_c_int64_t
  type(ofp_session) :: session

  call session%connect()  ! OFFPATH_AGENT
  call grow_stream()
  call run_tasks()
  call set_gauges()
  call exchange_records()
  call session%close()

contains

  subroutine expect(holds, what)
    logical, intent(in) :: holds
    character(len=*), intent(in) :: what
    if (.not. holds) error stop what
  end subroutine

  subroutine say(what)
    character(len=*), intent(in) :: what
    character(len=80) :: line
    print "(a)", what
    flush (6)
    read "(a)", line
  end subroutine

  subroutine grow_stream()
    integer(c_int64_t), parameter :: few = 10, many = 5000
    real(c_double), target :: x(many)
    type(ofp_stream) :: stream
    integer(c_int64_t) :: ticket, rows, bytes
    integer :: code
    x = 0.5_c_double
    call stream%open(session, "grows", [ofp_column("x", "g")], few)
    ticket = stream%send([c_loc(x)], few, "small", "")
    ticket = stream%send([c_loc(x)], many, "large", "", stat=code)
    call expect(code == OFP_TOO_LARGE, "a larger batch")
    call stream%grow(many)
    ticket = stream%send([c_loc(x)], many, "large", "")
    call stream%wait_stored(ticket, patience_ns)
    bytes = session%object_bytes("local:/grows", "large", "", patience_ns, rows)
    call expect(rows == many .and. bytes > 8 * many, "the larger batch")
    bytes = session%object_bytes("local:/grows", "small", "", patience_ns, rows)
    call expect(rows == few, "the batch before")
    call stream%grow(-1_c_int64_t, stat=code)
    call expect(code == OFP_TOO_LARGE, "more than a column may have")
    call stream%close()
  end subroutine

  subroutine run_tasks()
    integer, parameter :: n = 1000
    integer(c_int64_t), parameter :: bytes = 8 * n
    real(c_double), target :: x(n), y(n), a
    integer(c_int64_t), target :: long_ns
    real(c_double), pointer :: z(:), whole(:)
    type(ofp_segment) :: segment, joined
    type(ofp_tasks) :: tasks
    type(ofp_task) :: first, second, failing
    integer :: i, code
    x = [(real(i, c_double), i = 1, n)]
    y = 0.5_c_double
    a = 2
    long_ns = 3 * patience_ns
    call segment%open(session, bytes)
    call joined%open(session, 2 * bytes)
    call c_f_pointer(segment%data(), z, [n])
    call c_f_pointer(joined%data(), whole, [2 * n])
    call tasks%open(session, lane=0_c_int32_t)
    first = tasks%submit("t/axpy", [ofp_task_input("x", c_loc(x), bytes), ofp_task_input("y", c_loc(y), bytes)], &
                         [ofp_task_output("z", segment%data(), bytes)], c_loc(a), 8_c_int64_t)
    call first%wait_pulled()
    ! Halves of x in the other order as one input, and one that stays.
    second = tasks%submit("t/join", [ofp_task_input("x", c_loc(x(n / 2 + 1)), bytes / 2), &
                                     ofp_task_input("x", c_loc(x), bytes / 2), &
                                     ofp_task_input("y", c_loc(y), 16_c_int64_t, version=1_c_int64_t)], &
                          [ofp_task_output("all", joined%data(), 2 * bytes)], after=[first], wait_ns=patience_ns)
    call second%wait()
    call expect(whole(1) == x(n / 2 + 1) .and. whole(n) == x(n / 2) .and. whole(n + 2) == y(1), "pieces")
    call expect(second%output_bytes(1) == bytes + 16, "bytes of an output")
    call first%wait(0_c_int64_t)
    call expect(maxval(abs(z - (2 * x + y))) == 0, "axpy")
    failing = tasks%submit("t/complain")
    call failing%wait(stat=code)
    call expect(code == OFP_FUNCTION_FAILED, "failure")
    second = tasks%submit("t/join", outputs=[ofp_task_output("all", c_loc(x), bytes)], stat=code)
    call expect(code == OFP_DENIED, "output elsewhere")
    call first%free()
    call second%free()
    call failing%free()
    first = tasks%submit("t/nap", arguments=c_loc(long_ns), arguments_bytes=8_c_int64_t)
    call first%wait(0_c_int64_t, code)
    call expect(code == OFP_WOULD_BLOCK, "not over")
    call first%cancel()
    call first%wait(stat=code)
    call expect(code == OFP_CANCELLED, "cancelled")
    call first%free()
    call tasks%close()
    call segment%close()
    call joined%close()
    call say("tasks")
  end subroutine

  subroutine set_gauges()
    type(ofp_gauges) :: gauges
    call gauges%open(session, "solver", [ofp_gauge("iterations", "u64", "counter"), &
                                         ofp_gauge("residual", "f64", unit="seconds", description="of Fortran"), &
                                         ofp_gauge("left")])
    call gauges%set(1, 17_c_int64_t)
    call gauges%set(2, 0.25_c_double)
    call gauges%set(3, -3_c_int64_t)
    call gauges%set(4, 1_c_int64_t)  ! there is none
    call say("gauges")
    call gauges%clear(3)
    call say("cleared")
    call gauges%close()
  end subroutine

  subroutine exchange_records()
    type, bind(c) :: record
      real(c_double) :: power = 0
      integer(c_int64_t) :: jobs = 0
    end type
    type(ofp_exchange) :: exchange
    type(ofp_exchange_info) :: about
    type(ofp_view) :: view
    type(ofp_view_info) :: info
    type(ofp_view_entry) :: entry
    type(ofp_view_figure) :: figure
    type(record), target :: own
    type(record), pointer :: seen
    integer(c_int64_t) :: left_ns
    integer :: code, tries
    call exchange%open(session, "load", fields=[ofp_field("power", "f"), ofp_field("jobs", "i")], stat=code)
    call expect(code == OFP_SCHEMA, "other fields")
    call exchange%open(session, "load", publish=.true., fields=[ofp_field("power", "f", "watts"), &
                                                                ofp_field("jobs", "u")])
    about = exchange%info()
    call expect(about%members == 1 .and. about%grant_total == 100, "info")
    call expect(exchange%member(0_c_int32_t) == "a" .and. exchange%member(1_c_int32_t) == "", "members")
    own = record(101.5_c_double, 7)
    call exchange%publish(c_loc(own), c_sizeof(own))
    call exchange%grant([0_c_int32_t], [25_c_int64_t])
    do tries = 1, 100
      view = exchange%view(patience_ns)
      info = view%info()
      entry = view%entry(1)
      figure = view%figure(1)
      if (entry%has_value /= 0 .and. figure%count == 1 .and. exchange%granted(left_ns) == 25) exit
      call view%free()
      own%jobs = own%jobs + 1
      call exchange%publish(c_loc(own), c_sizeof(own))
    end do
    call expect(info%expected == 1 .and. info%entries == 1 .and. left_ns > 0, "view")
    call c_f_pointer(entry%record, seen)
    call expect(seen%power == 101.5_c_double .and. seen%jobs >= 7 .and. figure%value == 101.5_c_double, "record")
    entry = view%entry(2, code)
    call expect(code /= OFP_OK, "an entry that there is not")
    call view%free()
    call exchange%close()
    call say("exchange")
  end subroutine

end program
