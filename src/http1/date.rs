//! The Date field's value, formatted once a second (RFC 9110, sections 5.6.7 and 6.6.1).

/// Formats seconds since 1970 as an IMF-fixdate and keeps the last one.
#[derive(Debug)]
pub struct DateCache {
    /// What `text` shows.
    second: u64,
    text: [u8; 29],
}

/// 31 December 9999, 23:59:59: the last second with a year of four digits.
const LAST: u64 = 253_402_300_799;

impl DateCache {
    /// A cache that shows the epoch.
    #[must_use]
    pub fn new() -> Self {
        Self {
            second: 0,
            text: format(0),
        }
    }

    /// The date of `unix_seconds`, such as `Sun, 06 Nov 1994 08:49:37 GMT`. Later than the year 9999 is the end of it.
    pub fn get(&mut self, unix_seconds: u64) -> &[u8; 29] {
        if unix_seconds != self.second {
            self.second = unix_seconds;
            self.text = format(unix_seconds.min(LAST));
        }
        &self.text
    }
}

impl Default for DateCache {
    fn default() -> Self {
        Self::new()
    }
}

fn format(unix_seconds: u64) -> [u8; 29] {
    const WEEKDAYS: [&[u8; 3]; 7] = [b"Thu", b"Fri", b"Sat", b"Sun", b"Mon", b"Tue", b"Wed"];
    const MONTHS: [&[u8; 3]; 12] = [
        b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec",
    ];
    let days = unix_seconds / 86_400;
    let seconds = unix_seconds % 86_400;
    let (year, month, day) = civil(days);
    let mut text = *b"Thu, 01 Jan 1970 00:00:00 GMT";
    text[..3].copy_from_slice(WEEKDAYS[(days % 7) as usize]);
    text[5..7].copy_from_slice(&two_digits(day));
    text[8..11].copy_from_slice(MONTHS[(month - 1) as usize]);
    text[12..14].copy_from_slice(&two_digits(year / 100));
    text[14..16].copy_from_slice(&two_digits(year % 100));
    text[17..19].copy_from_slice(&two_digits(seconds / 3600));
    text[20..22].copy_from_slice(&two_digits(seconds / 60 % 60));
    text[23..25].copy_from_slice(&two_digits(seconds % 60));
    text
}

fn two_digits(number: u64) -> [u8; 2] {
    [b'0' + (number / 10) as u8, b'0' + (number % 10) as u8]
}

/// Year, month from 1 and day from 1 of a day since 1970, in the Gregorian calendar.
///
/// Years are counted from March, so that the leap day comes last and a month's first day is a linear function of its
/// number; 400 years always have 146,097 days.
fn civil(days: u64) -> (u64, u64, u64) {
    // From 1 March of the year 0 to 1 January 1970.
    let days = days + 719_468;
    let era = days / 146_097;
    let day_of_era = days % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 {
        from_march + 3
    } else {
        from_march - 9
    };
    (400 * era + year_of_era + u64::from(month <= 2), month, day)
}
