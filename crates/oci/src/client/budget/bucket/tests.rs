//! The bucket at given times.

use super::*;

fn bucket(most: f64, burst: f64) -> (Bucket, Instant) {
    let now = Instant::now();
    (Bucket::new(Rates { most, least: 0.5, burst }, now), now)
}

fn millis(duration: Duration) -> u128 {
    duration.as_millis()
}

/// When the turns of so many are that wait in line, in milliseconds from now.
fn turns(bucket: &mut Bucket, now: Instant, waiting: u32) -> Vec<u128> {
    (0..waiting).map(|before| millis(bucket.turn(now, before) - now)).collect()
}

#[test]
fn burst_passes_immediately_and_remaining_requests_at_the_rate() {
    let (mut bucket, now) = bucket(10.0, 3.0);
    assert_eq!(turns(&mut bucket, now, 6), [0, 0, 0, 99, 199, 299]);
    let taken: Vec<bool> = (0..4).map(|_| bucket.take(now).is_ok()).collect();
    assert_eq!(taken, [true, true, true, false]);
    let second = now + Duration::from_secs(2);
    assert_eq!(turns(&mut bucket, second, 4), [0, 0, 0, 99], "a quiet time fills it again");
}

#[test]
fn a_caller_that_comes_at_its_turn_is_served() {
    let (mut bucket, mut now) = bucket(7.3, 1.0);
    for _ in 0..1000 {
        if let Err(turn) = bucket.take(now) {
            now = turn;
            assert_eq!(bucket.take(now), Ok(()));
        }
    }
}

#[test]
fn a_429_halves_the_rate_at_most_once_a_second() {
    let (mut bucket, now) = bucket(20.0, 5.0);
    let mut rates = Vec::new();
    for tenth in [0_u32, 1, 9, 10, 20, 30, 40, 50, 60, 70] {
        bucket.throttled(now + Duration::from_millis(100) * tenth, None);
        rates.push(bucket.rate);
    }
    assert_eq!(rates, [10.0, 10.0, 10.0, 5.0, 2.5, 1.25, 0.625, 0.5, 0.5, 0.5]);
}

#[test]
fn nothing_is_sent_before_retry_after_ends() {
    let (mut bucket, now) = bucket(20.0, 5.0);
    bucket.throttled(now, Some(Duration::from_secs(3)));
    assert_eq!(turns(&mut bucket, now, 3), [3099, 3199, 3299], "then at the new rate");
    assert!(bucket.take(now + Duration::from_secs(3)).is_err());
    let BudgetState { rate, paused, .. } = bucket.state(now);
    assert_eq!((rate, paused), (10.0, Duration::from_secs(3)));
}

#[test]
fn an_absurd_retry_after_is_five_minutes() {
    let (mut bucket, now) = bucket(20.0, 5.0);
    bucket.throttled(now, Some(Duration::from_hours(24)));
    assert_eq!(bucket.state(now).paused, Duration::from_mins(5));
}

#[test]
fn answers_raise_the_rate_slowly_back_to_the_most() {
    let (mut bucket, now) = bucket(20.0, 5.0);
    bucket.throttled(now, None);
    bucket.answered(now + Duration::from_millis(500));
    assert!((bucket.rate - 10.0).abs() < 1e-9, "answers to what was on its way count for nothing");
    // A second's worth of answers, each second.
    let mut clock = now + Duration::from_secs(1);
    let mut seconds = 0;
    while bucket.rate < 20.0 {
        for _ in 0..bucket.rate as u32 {
            bucket.answered(clock);
        }
        clock += Duration::from_secs(1);
        seconds += 1;
        assert!(seconds < 60);
    }
    assert!((15..=25).contains(&seconds), "{seconds} s from 10 to 20 at 0.5 a second");
}

#[test]
fn invalid_rates_are_corrected() {
    let now = Instant::now();
    let mut bucket = Bucket::new(Rates { most: 0.0, least: -1.0, burst: 0.0 }, now);
    assert_eq!(bucket.take(now), Ok(()));
    assert!(bucket.take(now).is_err_and(|turn| turn < now + Duration::from_hours(1)));
}

#[test]
fn the_usual_rate_is_the_rate_that_lasts() {
    let (mut bucket, now) = bucket(20.0, 5.0);
    let after = |seconds| now + Duration::from_secs(seconds);
    (0..6).for_each(|second| bucket.throttled(after(second), None));
    let usual = |bucket: &Bucket, seconds| bucket.state(after(seconds)).usual.round();
    assert_eq!((bucket.rate.round(), usual(&bucket, 6)), (1.0, 18.0), "a dip of some seconds");
    assert_eq!([usual(&bucket, 60), usual(&bucket, 180), usual(&bucket, 1800)], [8.0, 1.0, 1.0], "one that stays");
    for second in 7..60 {
        (0..20).for_each(|_| bucket.answered(after(second)));
    }
    assert_eq!((bucket.rate, usual(&bucket, 60)), (20.0, 18.0), "one that has passed");
}
